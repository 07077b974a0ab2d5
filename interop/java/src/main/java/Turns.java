import java.io.RandomAccessFile;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Supplier;

/**
 * Raises a counter in a file that nothing but the lock protects. The file has the counter, who wrote it last and when, so that
 * the time of a hand-over from the other side is known.
 */
final class Turns {
    private Turns() {}

    interface Lock {
        void lock() throws Exception;
        void unlock() throws Exception;
    }

    /** {@code THREAD contend NAME FILE THREADS MS}: takes turns until the time is over. Replies {@code turns COUNT HAND-OVERS MEDIAN_US}. */
    static String take(String[] words, Supplier<Lock> locks) throws Exception {
        String path = words[3];
        int threads = Integer.parseInt(words[4]);
        long milliseconds = Long.parseLong(words[5]);
        long end = System.nanoTime() + milliseconds * 1_000_000;
        AtomicLong turns = new AtomicLong();
        ConcurrentLinkedQueue<Long> handOvers = new ConcurrentLinkedQueue<>();
        Thread[] all = new Thread[threads];
        Throwable[] failed = new Throwable[1];
        for (int i = 0; i < threads; i++) {
            all[i] = new Thread(() -> {
                try (RandomAccessFile file = new RandomAccessFile(path, "rw")) {
                    Lock lock = locks.get();
                    while (System.nanoTime() < end) {
                        lock.lock();
                        try {
                            turn(file, handOvers);
                            turns.incrementAndGet();
                        } finally {
                            lock.unlock();
                        }
                    }
                } catch (Throwable error) {
                    failed[0] = error;
                }
            });
            all[i].start();
        }
        for (Thread thread : all) thread.join();
        if (failed[0] != null) return "failed " + failed[0];
        long[] sorted = handOvers.stream().mapToLong(Long::longValue).sorted().toArray();
        long median = sorted.length == 0 ? -1 : sorted[sorted.length / 2] / 1000;
        return "turns " + turns.get() + " " + sorted.length + " " + median;
    }

    private static void turn(RandomAccessFile file, ConcurrentLinkedQueue<Long> handOvers) throws Exception {
        long now = System.nanoTime();
        byte[] bytes = new byte[64];
        file.seek(0);
        file.readFully(bytes);
        String[] words = new String(bytes, StandardCharsets.US_ASCII).trim().split(" ");
        if (!words[1].equals("java") && !words[1].equals("none")) handOvers.add(now - Long.parseLong(words[2]));
        String text = (Long.parseLong(words[0]) + 1) + " java " + System.nanoTime();
        file.seek(0);
        file.write(String.format("%-64s", text).getBytes(StandardCharsets.US_ASCII));
    }
}

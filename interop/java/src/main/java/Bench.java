import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Measures a client's lock, in two steps each, so that connections are not counted: {@code THREAD turns KIND NAME alone|spread|contended
 * COUNT MS TURNS} and {@code THREAD relay KIND NAME COUNT HAND-OVERS} prepare and reply {@code ready}; {@code THREAD go} measures and
 * replies with JSON.
 */
final class Bench {
    private static final int CLIENTS_OF_WAITERS = 4;
    private static final Map<String, Callable<String>> PREPARED = new ConcurrentHashMap<>();

    private Bench() {}

    /** A connection of its own. */
    interface Client extends AutoCloseable {
        Turns.Lock lock(String kind, String name);
    }

    /** The reply to a command of the bench; null if it is none. */
    static String run(String[] words, Callable<Client> connect) throws Exception {
        switch (words[1]) {
            case "turns":
                PREPARED.put(words[0], turns(words, connect));
                return "ready";
            case "relay":
                PREPARED.put(words[0], relay(words, connect));
                return "ready";
            case "go":
                return PREPARED.remove(words[0]).call();
            default:
                return null;
        }
    }

    private static Callable<String> turns(String[] words, Callable<Client> connect) throws Exception {
        boolean contended = words[4].equals("contended");
        int count = Integer.parseInt(words[5]);
        long limit = Long.parseLong(words[6]) * 1_000_000;
        AtomicLong left = new AtomicLong(Long.parseLong(words[7]));
        List<Client> clients = new ArrayList<>();
        for (int number = 0; number < (contended ? count : 1); number++) clients.add(connect.call());
        List<Turns.Lock> locks = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            Client client = clients.get(contended ? number : 0);
            locks.add(client.lock(words[2], contended ? words[3] : words[3] + "-" + number));
            locks.get(number).lock();
            locks.get(number).unlock();
        }
        ExecutorService threads = Executors.newFixedThreadPool(count);
        // What a client opens only to wait is no part of a turn either.
        if (contended) meet(threads, locks);
        return () -> {
            CyclicBarrier ready = new CyclicBarrier(count);
            AtomicInteger last = new AtomicInteger(-1);
            List<Future<String>> results = new ArrayList<>();
            for (int number = 0; number < count; number++) {
                int me = number;
                results.add(threads.submit(() -> contend(locks.get(me), me, last, ready, limit, left)));
            }
            List<String> texts = new ArrayList<>();
            for (Future<String> result : results) texts.add(result.get());
            threads.shutdown();
            Executors.newSingleThreadExecutor(Bench::daemon).submit(() -> {
                for (Client client : clients) client.close();
                return null;
            });
            return "[" + String.join(",", texts) + "]";
        };
    }

    /** Lets all take the lock once, at the same time. */
    private static void meet(ExecutorService threads, List<Turns.Lock> locks) throws Exception {
        List<Future<Void>> turns = new ArrayList<>();
        for (Turns.Lock lock : locks) {
            turns.add(threads.submit(() -> {
                lock.lock();
                lock.unlock();
                return null;
            }));
        }
        for (Future<Void> turn : turns) turn.get();
    }

    private static Thread daemon(Runnable task) {
        Thread thread = new Thread(task);
        thread.setDaemon(true);
        return thread;
    }

    private static String contend(
            Turns.Lock lock, int me, AtomicInteger last, CyclicBarrier ready, long limit, AtomicLong left) throws Exception {
        TreeMap<Long, Long> waits = new TreeMap<>();
        long all = 0, handOvers = 0, allHandOvers = 0;
        double seconds = 0;
        ready.await();
        long started = System.nanoTime();
        while (System.nanoTime() - started < limit && left.decrementAndGet() >= 0) {
            long asked = System.nanoTime();
            lock.lock();
            boolean isHandOver = last.getAndSet(me) != me;
            lock.unlock();
            long ended = System.nanoTime();
            all++;
            if (isHandOver) allHandOvers++;
            if (ended - started <= limit) {
                waits.merge(rounded(ended - asked), 1L, Long::sum);
                seconds = (ended - started) / 1e9;
                if (isHandOver) handOvers++;
            }
        }
        return "{\"waits\":" + json(waits) + ",\"all\":" + all + ",\"seconds\":" + seconds + ",\"hand_overs\":" + handOvers
            + ",\"all_hand_overs\":" + allHandOvers + "}";
    }

    private static Callable<String> relay(String[] words, Callable<Client> connect) throws Exception {
        int count = Integer.parseInt(words[4]);
        AtomicInteger left = new AtomicInteger(Integer.parseInt(words[5]));
        CountDownLatch done = new CountDownLatch(left.get());
        AtomicLong released = new AtomicLong();
        TreeMap<Long, Long> waits = new TreeMap<>();
        Turns.Lock held = connect.call().lock(words[2], words[3]);
        held.lock();
        List<Client> clients = new ArrayList<>();
        for (int number = 0; number < CLIENTS_OF_WAITERS; number++) clients.add(connect.call());
        for (int number = 0; number < count; number++) {
            Turns.Lock lock = clients.get(number % CLIENTS_OF_WAITERS).lock(words[2], words[3]);
            daemon(() -> {
                try {
                    lock.lock();
                    // Only the holder is here, so that nobody else writes.
                    long took = System.nanoTime() - released.get();
                    if (left.getAndDecrement() > 0) waits.merge(rounded(took), 1L, Long::sum);
                    done.countDown();
                    released.set(System.nanoTime());
                    lock.unlock();
                } catch (Exception error) {
                    System.err.println(error);
                }
            }).start();
        }
        return () -> {
            released.set(System.nanoTime());
            held.unlock();
            done.await();
            return json(waits);
        };
    }

    /** Three digits: as fine as any two runs agree, so that the reply stays short. */
    private static long rounded(long nanoseconds) {
        long unit = 1;
        while (nanoseconds / unit >= 1000) unit *= 10;
        return nanoseconds / unit * unit;
    }

    private static String json(TreeMap<Long, Long> waits) {
        List<String> pairs = new ArrayList<>();
        waits.forEach((wait, times) -> pairs.add("[" + wait + "," + times + "]"));
        return "[" + String.join(",", pairs) + "]";
    }
}

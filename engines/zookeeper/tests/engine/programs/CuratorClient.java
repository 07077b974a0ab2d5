// A client on Curator, led by lines on its standard input: CuratorClient SERVERS PATH mutex|read|write
//
//   acquire         waits for the lock, then replies 'acquired'
//   release         replies 'released'
//   count FILE N    N times: acquire, raise the number in the file without any protection, release; 'counted'
//   pairs MS N      N threads acquire and release locks of their own for that time; replies how often

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.retry.ExponentialBackoffRetry;

public class CuratorClient {
    public static void main(String[] args) throws Exception {
        CuratorFramework client =
            CuratorFrameworkFactory.newClient(args[0], 10000, 10000, new ExponentialBackoffRetry(100, 5));
        client.start();
        client.blockUntilConnected();
        InterProcessLock lock = lock(client, args[1], args[2]);
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            System.out.println(obey(client, args[1], lock, line.split(" ")));
            System.out.flush();
        }
        client.close();
    }

    static InterProcessLock lock(CuratorFramework client, String path, String kind) {
        switch (kind) {
            case "mutex": return new InterProcessMutex(client, path);
            case "read": return new InterProcessReadWriteLock(client, path).readLock();
            case "write": return new InterProcessReadWriteLock(client, path).writeLock();
            default: throw new IllegalArgumentException(kind);
        }
    }

    static int pairs(CuratorFramework client, String path, long milliseconds, int threads) throws Exception {
        long end = System.nanoTime() + milliseconds * 1000000;
        AtomicInteger pairs = new AtomicInteger();
        Thread[] running = new Thread[threads];
        for (int number = 0; number < threads; number++) {
            InterProcessLock own = lock(client, path + "-" + number, "mutex");
            running[number] = new Thread(() -> {
                try {
                    for (; System.nanoTime() < end; pairs.incrementAndGet()) {
                        own.acquire();
                        own.release();
                    }
                } catch (Exception error) {
                    throw new RuntimeException(error);
                }
            });
            running[number].start();
        }
        for (Thread thread : running) {
            thread.join();
        }
        return pairs.get();
    }

    static String obey(CuratorFramework client, String path, InterProcessLock lock, String[] words)
            throws Exception {
        switch (words[0]) {
            case "acquire":
                lock.acquire();
                return "acquired";
            case "release":
                lock.release();
                return "released";
            case "count":
                for (int left = Integer.parseInt(words[2]); left > 0; left--) {
                    lock.acquire();
                    Path file = Path.of(words[1]);
                    int number = Integer.parseInt(Files.readString(file));
                    Files.writeString(file, Integer.toString(number + 1));
                    lock.release();
                }
                return "counted";
            case "pairs":
                return Integer.toString(pairs(client, path, Long.parseLong(words[1]), Integer.parseInt(words[2])));
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }
}

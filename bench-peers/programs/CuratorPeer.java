// Takes turns with Curator's InterProcessMutex, as a line on standard input asks:
//
//   LIBRARY HOST:PORT LOCK spread|contended COUNT MILLISECONDS TURNS
//
// and answers with a line of JSON: for each thread {"waits": [[nanoseconds, count], …], "all": turns, "seconds": time}.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;

public class CuratorPeer {
    public static void main(String[] args) throws Exception {
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            System.out.println(takeTurns(line.split(" ")));
            System.out.flush();
        }
    }

    static String takeTurns(String[] words) throws Exception {
        boolean contended = words[3].equals("contended");
        int count = Integer.parseInt(words[4]);
        long nanoseconds = Long.parseLong(words[5]) * 1_000_000;
        long turns = Long.parseLong(words[6]);
        List<CuratorFramework> clients = new ArrayList<>();
        for (int number = 0; number < (contended ? count : 1); number++) {
            clients.add(connect(words[1]));
        }
        ExecutorService threads = Executors.newFixedThreadPool(count);
        CyclicBarrier ready = new CyclicBarrier(count);
        List<Future<String>> results = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            CuratorFramework client = clients.get(contended ? number : 0);
            String path = "/" + words[2] + (contended ? "" : "-" + number);
            InterProcessMutex lock = new InterProcessMutex(client, path);
            results.add(threads.submit(() -> run(lock, ready, nanoseconds, turns)));
        }
        List<String> texts = new ArrayList<>();
        for (Future<String> result : results) {
            texts.add(result.get());
        }
        threads.shutdown();
        clients.forEach(CuratorFramework::close);
        return "[" + String.join(",", texts) + "]";
    }

    static CuratorFramework connect(String host) throws Exception {
        CuratorFramework client =
            CuratorFrameworkFactory.newClient(host, 10000, 10000, new ExponentialBackoffRetry(100, 5));
        client.start();
        client.blockUntilConnected();
        return client;
    }

    static String run(InterProcessMutex lock, CyclicBarrier ready, long nanoseconds, long turns) throws Exception {
        TreeMap<Long, Long> waits = new TreeMap<>();
        long done = 0;
        double last = 0;
        lock.acquire();
        lock.release();
        ready.await();
        long started = System.nanoTime();
        while (done < turns && System.nanoTime() - started < nanoseconds) {
            long asked = System.nanoTime();
            lock.acquire();
            lock.release();
            long took = System.nanoTime() - asked;
            done++;
            long ended = System.nanoTime() - started;
            if (ended <= nanoseconds) {
                waits.merge(took / 1000 * 1000, 1L, Long::sum);
                last = ended / 1e9;
            }
        }
        List<String> pairs = new ArrayList<>();
        waits.forEach((wait, times) -> pairs.add("[" + wait + "," + times + "]"));
        return "{\"waits\":[" + String.join(",", pairs) + "],\"all\":" + done + ",\"seconds\":" + last + "}";
    }
}

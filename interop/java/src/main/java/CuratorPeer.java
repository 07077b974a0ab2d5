import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.RetryOneTime;

/** Locks by Curator, as lines on standard input say: {@code THREAD lock|try|wait|held|unlock mutex|read|write NAME [MS]}. */
public final class CuratorPeer {
    private CuratorPeer() {}

    public static void main(String[] arguments) throws Exception {
        int session = arguments.length > 1 ? Integer.parseInt(arguments[1]) : 60_000;
        CuratorFramework client = connect(arguments[0], session);
        Set<String> holding = ConcurrentHashMap.newKeySet();
        // As its documentation asks of all who hold locks.
        client.getConnectionStateListenable().addListener((connection, state) -> {
            if (state == ConnectionState.SUSPENDED || state == ConnectionState.LOST) {
                for (String thread : holding) if (holding.remove(thread)) Threads.say(thread + " lost!");
            }
        });
        ConcurrentHashMap<String, InterProcessLock> locks = new ConcurrentHashMap<>();
        ConcurrentHashMap<String, InterProcessReadWriteLock> shared = new ConcurrentHashMap<>();
        Threads.serve(words -> {
            String measured = Bench.run(words, () -> bench(connect(arguments[0], session)));
            if (measured != null) return measured;
            if (words[1].equals("contend")) {
                return Turns.take(words, () -> {
                    InterProcessMutex mutex = new InterProcessMutex(client, "/" + words[2]);
                    return new Turns.Lock() {
                        public void lock() throws Exception { mutex.acquire(); }
                        public void unlock() throws Exception { mutex.release(); }
                    };
                });
            }
            String path = "/" + words[3];
            InterProcessLock lock = locks.computeIfAbsent(words[2] + path, key -> {
                if (words[2].equals("mutex")) return new InterProcessMutex(client, path);
                InterProcessReadWriteLock both =
                    shared.computeIfAbsent(path, name -> new InterProcessReadWriteLock(client, name));
                return words[2].equals("read") ? both.readLock() : both.writeLock();
            });
            switch (words[1]) {
                case "lock":
                case "token":
                    lock.acquire();
                    holding.add(words[0]);
                    return words[1].equals("lock") ? "locked" : "token";
                case "wait":
                    return lock.acquire(Long.parseLong(words[4]), TimeUnit.MILLISECONDS) ? "locked" : "gave-up";
                case "held":
                    return holding.contains(words[0]) && lock.isAcquiredInThisProcess() ? "held" : "lost";
                case "try":
                    return lock.acquire(0, TimeUnit.MILLISECONDS) ? "locked" : "busy";
                default:
                    holding.remove(words[0]);
                    lock.release();
                    return "unlocked";
            }
        });
    }

    private static CuratorFramework connect(String address, int session) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.newClient(address, session, 10_000, new RetryOneTime(100));
        client.start();
        client.blockUntilConnected();
        return client;
    }

    private static Bench.Client bench(CuratorFramework client) {
        return new Bench.Client() {
            public Turns.Lock lock(String kind, String name) {
                InterProcessMutex mutex = new InterProcessMutex(client, "/" + name);
                return new Turns.Lock() {
                    public void lock() throws Exception { mutex.acquire(); }
                    public void unlock() throws Exception { mutex.release(); }
                };
            }
            public void close() { client.close(); }
        };
    }
}

import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.retry.RetryOneTime;

/** Locks by Curator, as lines on standard input say: {@code THREAD lock|try|unlock mutex|read|write NAME}. */
public final class CuratorPeer {
    private CuratorPeer() {}

    public static void main(String[] arguments) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.newClient(arguments[0], new RetryOneTime(100));
        client.start();
        client.blockUntilConnected();
        ConcurrentHashMap<String, InterProcessLock> locks = new ConcurrentHashMap<>();
        ConcurrentHashMap<String, InterProcessReadWriteLock> shared = new ConcurrentHashMap<>();
        Threads.serve(words -> {
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
                    lock.acquire();
                    return "locked";
                case "try":
                    return lock.acquire(0, TimeUnit.MILLISECONDS) ? "locked" : "busy";
                default:
                    lock.release();
                    return "unlocked";
            }
        });
    }
}

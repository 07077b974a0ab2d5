import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * Locks by Redisson, as lines on standard input say: {@code THREAD VERB KIND NAME [LEASE_MS]}.
 */
public final class RedissonPeer {
    private RedissonPeer() {}

    public static void main(String[] arguments) throws Exception {
        Config config = new Config();
        if (arguments[0].equals("cluster")) {
            config.useClusterServers().addNodeAddress(arguments[1].split(","));
        } else {
            config.useSingleServer().setAddress(arguments[1]);
        }
        if (arguments.length > 2) config.setLockWatchdogTimeout(Long.parseLong(arguments[2]));
        RedissonClient client = Redisson.create(config);
        Threads.serve(words -> {
            String measured = Bench.run(words, () -> bench(Redisson.create(config)));
            return measured == null ? run(client, words) : measured;
        });
    }

    private static RLock lock(RedissonClient client, String kind, String name) {
        return switch (kind) {
            case "read" -> client.getReadWriteLock(name).readLock();
            case "write" -> client.getReadWriteLock(name).writeLock();
            case "fenced" -> client.getFencedLock(name);
            case "fair" -> client.getFairLock(name);
            default -> client.getLock(name);
        };
    }

    private static Bench.Client bench(RedissonClient client) {
        return new Bench.Client() {
            public Turns.Lock lock(String kind, String name) {
                RLock lock = RedissonPeer.lock(client, kind, name);
                return new Turns.Lock() {
                    public void lock() { lock.lock(); }
                    public void unlock() { lock.unlock(); }
                };
            }
            public void close() { client.shutdown(); }
        };
    }

    private static String run(RedissonClient client, String[] words) throws Exception {
        String verb = words[1];
        if (verb.equals("contend")) {
            return Turns.take(words, () -> {
                RLock lock = client.getLock(words[2]);
                return new Turns.Lock() {
                    public void lock() { lock.lock(); }
                    public void unlock() { lock.unlock(); }
                };
            });
        }
        String name = words[3];
        RLock lock = lock(client, words[2], name);
        switch (verb) {
            case "lock":
                if (words.length > 4) lock.lock(Long.parseLong(words[4]), TimeUnit.MILLISECONDS);
                else lock.lock();
                return "locked";
            case "wait":
                return lock.tryLock(Long.parseLong(words[4]), TimeUnit.MILLISECONDS) ? "locked" : "gave-up";
            case "held":
                return lock.isHeldByCurrentThread() ? "held" : "lost";
            case "turn":
                lock.lock();
                lock.unlock();
                return "had it";
            case "token":
                return "token " + client.getFencedLock(name).lockAndGetToken();
            case "try":
                return lock.tryLock() ? "locked" : "busy";
            case "unlock":
                lock.unlock();
                return "unlocked";
            case "force":
                return lock.forceUnlock() ? "freed" : "free";
            case "count":
                return "count " + lock.getHoldCount();
            default:
                return "unknown verb " + verb;
        }
    }
}

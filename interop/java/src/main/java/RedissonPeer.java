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
        Threads.serve(words -> run(client, words));
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
        RLock lock = switch (words[2]) {
            case "read" -> client.getReadWriteLock(name).readLock();
            case "write" -> client.getReadWriteLock(name).writeLock();
            case "fenced" -> client.getFencedLock(name);
            default -> client.getLock(name);
        };
        switch (verb) {
            case "lock":
                if (words.length > 4) lock.lock(Long.parseLong(words[4]), TimeUnit.MILLISECONDS);
                else lock.lock();
                return "locked";
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

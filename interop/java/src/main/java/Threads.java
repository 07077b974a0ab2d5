import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * Does what lines on standard input say: {@code THREAD VERB ...}. Each thread is one of its own, since locks belong to threads
 * in Java, and replies with a line of its own when it is done.
 */
final class Threads {
    private Threads() {}

    interface Command {
        String run(String[] words) throws Exception;
    }

    static void serve(Command command) throws Exception {
        Map<String, ExecutorService> threads = new ConcurrentHashMap<>();
        say("ready");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = lines.readLine()) != null; ) {
            String[] words = line.split(" ");
            ExecutorService thread = threads.computeIfAbsent(words[0], name -> Executors.newSingleThreadExecutor());
            thread.submit(() -> {
                try {
                    say(words[0] + " " + command.run(words));
                } catch (Throwable error) {
                    say(words[0] + " failed " + error);
                }
            });
        }
        System.exit(0);
    }

    static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}

package lockdog.redisson;

import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.redisson.Redisson;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * One Redisson client for each server, that does what standard input says.
 *
 * <p>The first line is the settings ({@link Settings}); the answer is {@code {"uuid": ...}}, the
 * first client's, once all are connected. Every further line is a call, {@code {"id", "thread", "call", ...}}, with the
 * arguments of {@link Calls}; its answer carries the same {@code id} and comes whenever the call is
 * done. The end of the input is a crash: the process is gone at once and releases nothing.
 */
public final class Driver {
    /** One for each server; the first one is the driver's own. */
    private final List<RedissonClient> clients;

    private final Answers answers;
    private final Map<String, LogicalThread> threads = new HashMap<>();

    private Driver(List<RedissonClient> clients, Answers answers) {
        this.clients = clients;
        this.answers = answers;
    }

    public static void main(String[] args) throws IOException {
        PrintStream stdout = System.out;
        // Whatever a library prints must not be taken for an answer.
        System.setOut(System.err);
        Answers answers = new Answers(stdout);
        BufferedReader input =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        int status = 1;
        try {
            String settings = input.readLine();
            if (settings != null) {
                List<RedissonClient> clients = new ArrayList<>();
                for (Config config : Settings.parse(settings)) {
                    clients.add(Redisson.create(config));
                }
                answers.ready(clients.get(0).getId());
                new Driver(clients, answers).serve(input);
            }
            status = 0;
        } catch (RuntimeException | IOException e) {
            e.printStackTrace();
        }
        // Not exit(): neither shutdown hooks nor waiting threads may hold up or soften a crash.
        Runtime.getRuntime().halt(status);
    }

    private void serve(BufferedReader input) throws IOException {
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            JsonObject call = JsonParser.parseString(line).getAsJsonObject();
            String what = call.get("call").getAsString();
            if (what.equals("shutdown")) {
                answers.to(call, shutdown -> {
                    clients.forEach(RedissonClient::shutdown);
                    return null;
                });
                return;
            }
            LogicalThread thread = threads.computeIfAbsent(
                    call.get("thread").getAsString(),
                    name -> new LogicalThread(name, answers, new Calls(clients)::perform));
            // These two are about a thread that may be busy, so they cannot wait in its queue.
            switch (what) {
                case "interrupt" -> answers.to(call, interrupt -> thread.interrupt());
                case "threadId" -> answers.to(call, threadId -> thread.id());
                default -> thread.enqueue(call);
            }
        }
    }
}

package lockdog.redisson;

import com.google.gson.JsonObject;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.redisson.Redisson;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * The clients of one test, one for each of its servers, and its logical threads.
 *
 * <p>Its methods are called by the driver's main thread and do not block: the clients are created and
 * shut down by a thread of the session.
 */
final class Session {
    private final Answers answers;
    private final Map<String, LogicalThread> threads = new HashMap<>();
    /** Written by {@link #starter} only; read by others after the answer to {@code open}. */
    private final List<RedissonClient> clients = new ArrayList<>();
    private final ExecutorService starter = Executors.newSingleThreadExecutor(run -> {
        Thread thread = new Thread(run, "session");
        thread.setDaemon(true);
        return thread;
    });

    /** Creates the clients, and answers the call with their uuids. */
    Session(Answers answers, JsonObject call) {
        this.answers = answers;
        starter.execute(() -> answers.to(call, this::open));
    }

    private List<String> open(JsonObject call) {
        for (Config config : Settings.parse(call.getAsJsonObject("settings"))) {
            clients.add(Redisson.create(config));
        }
        return clients.stream().map(RedissonClient::getId).toList();
    }

    void perform(String what, JsonObject call) {
        LogicalThread thread = threads.computeIfAbsent(
                call.get("thread").getAsString(),
                name -> new LogicalThread(name, answers, new Calls(clients)::perform));
        // These are about a thread that may be busy, so they cannot wait in its queue.
        switch (what) {
            case "interrupt" -> answers.to(call, interrupt -> thread.interrupt());
            case "threadId" -> answers.to(call, threadId -> thread.id());
            case "waitsForMessage" -> answers.to(call, waits -> thread.waitsForMessage());
            default -> thread.enqueue(call);
        }
    }

    /** Shuts the clients down, which releases no lock, and then ends the threads. */
    void close(JsonObject call) {
        List<LogicalThread> ending = List.copyOf(threads.values());
        ending.forEach(LogicalThread::beginNoMore);
        starter.execute(() -> {
            answers.to(call, close -> {
                shutDown();
                return null;
            });
            // Only now: an interrupted cell would release its lock through a client that still works.
            ending.forEach(LogicalThread::end);
        });
        starter.shutdown();
    }

    private void shutDown() {
        RuntimeException first = null;
        for (RedissonClient client : clients) {
            try {
                client.shutdown();
            } catch (RuntimeException e) {
                first = e;
            }
        }
        if (first != null) {
            throw first;
        }
    }
}

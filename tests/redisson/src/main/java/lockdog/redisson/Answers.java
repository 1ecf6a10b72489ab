package lockdog.redisson;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonObject;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.time.temporal.ChronoUnit;

/**
 * Writes answers, one JSON object a line:
 * {@code {"id", "ok", "result" or "error": {"class", "message", "cause"}, "at_us", "took_us"}}.
 *
 * <p>{@code at_us} is the wall clock, in microseconds since 1970, when the call returned or threw.
 */
final class Answers {
    private final Gson gson = new GsonBuilder().serializeNulls().create();
    private final PrintStream stdout;

    Answers(PrintStream stdout) {
        this.stdout = stdout;
    }

    void to(JsonObject call, Work work) {
        JsonObject answer = new JsonObject();
        answer.add("id", call.get("id"));
        long begin = System.nanoTime();
        Object result = null;
        Throwable error = null;
        try {
            result = work.perform(call);
        } catch (Throwable thrown) {
            // The test that made the call gets every error.
            error = thrown;
        }
        long took = System.nanoTime() - begin;
        Instant now = Instant.now();
        answer.addProperty("ok", error == null);
        if (error == null) {
            answer.add("result", gson.toJsonTree(result));
        } else {
            answer.add("error", describe(error));
        }
        answer.addProperty("at_us", ChronoUnit.MICROS.between(Instant.EPOCH, now));
        answer.addProperty("took_us", took / 1_000);
        write(answer);
    }

    private static JsonObject describe(Throwable error) {
        JsonObject description = new JsonObject();
        description.addProperty("class", error.getClass().getName());
        description.addProperty("message", error.getMessage());
        if (error.getCause() != null) {
            description.addProperty("cause", error.getCause().getClass().getName());
        }
        return description;
    }

    /** One write of whole bytes at a time: threads must not mix their lines. */
    private synchronized void write(JsonObject line) {
        stdout.writeBytes((gson.toJson(line) + "\n").getBytes(StandardCharsets.UTF_8));
        stdout.flush();
    }

    /** What a call does: its arguments in, its result out. */
    @FunctionalInterface
    interface Work {
        Object perform(JsonObject call) throws Throwable;
    }
}

package lockdog.redisson;

import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;

/**
 * Redisson clients that do what standard input says, for one test or for several at a time.
 *
 * <p>Every line is a call, {@code {"id", "session", "call", ...}}; its answer carries the same
 * {@code id} and comes whenever the call is done. {@code open} with {@code settings} ({@link Settings})
 * begins a session, one test's clients; it returns their uuids once they are connected. {@code close}
 * shuts the session's clients down. Every other call names the session's {@code thread} that makes it
 * and has the arguments of {@link Calls}. The end of the input is a crash: the process is gone at once
 * and releases nothing.
 */
public final class Driver {
    private final Answers answers;
    private final Map<Long, Session> sessions = new HashMap<>();

    private Driver(Answers answers) {
        this.answers = answers;
    }

    public static void main(String[] args) {
        PrintStream stdout = System.out;
        // Output of a library must not be mistaken for an answer.
        System.setOut(System.err);
        BufferedReader input =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        int status = 1;
        try {
            new Driver(new Answers(stdout)).serve(input);
            status = 0;
        } catch (Throwable e) {
            e.printStackTrace();
        }
        // halt() and not exit(), because shutdown hooks and waiting threads must not delay a crash.
        Runtime.getRuntime().halt(status);
    }

    private void serve(BufferedReader input) throws IOException {
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            JsonObject call = JsonParser.parseString(line).getAsJsonObject();
            try {
                begin(call);
            } catch (Throwable error) {
                // The call of one test must not end the clients of the others.
                answers.to(call, failed -> {
                    throw error;
                });
            }
        }
    }

    /** Never blocks on a call, because that would hold up all sessions. */
    private void begin(JsonObject call) {
        Long id = call.get("session").getAsLong();
        String what = call.get("call").getAsString();
        if (what.equals("open")) {
            sessions.put(id, new Session(answers, call));
            return;
        }
        Session session = what.equals("close") ? sessions.remove(id) : sessions.get(id);
        if (session == null) {
            throw new IllegalStateException("session " + id + " is closed");
        }
        if (what.equals("close")) {
            session.close(call);
        } else {
            session.perform(what, call);
        }
    }
}

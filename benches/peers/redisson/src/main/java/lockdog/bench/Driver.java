package lockdog.bench;

import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import com.google.gson.JsonSyntaxException;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;

/**
 * Redisson in the benchmarks: does the workloads that the runner asks for, one after the other.
 *
 * <p>A line of standard input is a request ({@link Request}). It is answered by
 * {@code {"cell", "event": "ready"}} once clients are connected and warm; after the line
 * {@code {"cell", "go": true}} the workload is measured and answered by
 * {@code {"cell", "event": "result", ...}}. Nothing is sent to Redis between ready and go, so that
 * the runner can count commands there, or kill a server.
 *
 * <p>The JVM stays from cell to cell, which keeps it warm; clients do not. The end of the input ends
 * the process at once, whatever it does.
 */
public final class Driver {
    private final BlockingQueue<String> input;
    private final PrintStream stdout;

    private Driver(BlockingQueue<String> input, PrintStream stdout) {
        this.input = input;
        this.stdout = stdout;
    }

    public static void main(String[] args) throws InterruptedException {
        PrintStream stdout = System.out;
        // Whatever a library prints must not be taken for an answer.
        System.setOut(System.err);
        BlockingQueue<String> input = new LinkedBlockingQueue<>();
        Thread reader = new Thread(() -> read(input), "stdin");
        reader.setDaemon(true);
        reader.start();
        Driver driver = new Driver(input, stdout);
        while (true) {
            driver.serve(input.take());
        }
    }

    private static void read(BlockingQueue<String> lines) {
        int status = 0;
        try {
            BufferedReader stdin =
                    new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
            for (String line = stdin.readLine(); line != null; line = stdin.readLine()) {
                lines.add(line);
            }
        } catch (IOException e) {
            e.printStackTrace();
            status = 1;
        }
        // Not exit(): no thread is left that needs an orderly end.
        Runtime.getRuntime().halt(status);
    }

    private void serve(String line) throws InterruptedException {
        Request request;
        try {
            request = Request.parse(line);
        } catch (JsonSyntaxException | IllegalArgumentException e) {
            write(null, "result", "failed", e.toString());
            return;
        }
        if (!Workload.isKnown(request.workload())) {
            write(request, "result", "unsupported", "not a workload of this driver");
            return;
        }
        Clients clients = null;
        try {
            clients = Clients.connect(request);
            Workload workload = new Workload(request, clients);
            Phase warmUp = workload.run(request.warmUpSeconds());
            clients.closeAfter(warmUp);
            write(request, "ready", null, null);
            if (!isGo(request, input.take())) {
                write(request, "result", "failed", "the line after ready was no go");
                return;
            }
            Phase measured = workload.run(request.seconds());
            clients.closeAfter(measured);
            write(request, "result", Report.of(request, measured));
        } catch (RuntimeException e) {
            write(request, "result", "failed", e.toString());
        } finally {
            if (clients != null) {
                clients.close();
            }
        }
    }

    private static boolean isGo(Request request, String line) {
        JsonObject go = JsonParser.parseString(line).getAsJsonObject();
        return go.has("go") && go.get("go").getAsBoolean() && go.get("cell").equals(request.cell());
    }

    private void write(Request request, String event, String key, String value) {
        JsonObject fields = new JsonObject();
        if (key != null) {
            fields.addProperty(key, value);
        }
        write(request, event, fields);
    }

    private void write(Request request, String event, JsonObject fields) {
        JsonObject line = new JsonObject();
        line.add("cell", request == null ? null : request.cell());
        line.addProperty("event", event);
        fields.entrySet().forEach(field -> line.add(field.getKey(), field.getValue()));
        stdout.writeBytes((line + "\n").getBytes(StandardCharsets.UTF_8));
        stdout.flush();
    }
}

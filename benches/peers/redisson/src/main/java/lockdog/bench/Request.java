package lockdog.bench;

import com.google.gson.Gson;
import com.google.gson.JsonElement;
import com.google.gson.annotations.SerializedName;
import java.util.List;

/**
 * One cell of the benchmarks.
 *
 * @param urls one server; five for W6; the masters of a cluster for W18
 * @param owners of one client
 * @param name begins the name of every lock
 * @param api {@code async} for W1 by futures instead of threads
 */
record Request(
        JsonElement cell,
        String workload,
        List<String> urls,
        int owners,
        int clients,
        @SerializedName("warmup_s") double warmUpSeconds,
        double seconds,
        String name,
        String api) {

    static Request parse(String line) {
        Request request = new Gson().fromJson(line, Request.class);
        if (request == null
                || request.cell == null
                || request.workload == null
                || request.urls == null
                || request.urls.isEmpty()
                || request.name == null
                || request.owners < 1) {
            throw new IllegalArgumentException("not a request: " + line);
        }
        return request;
    }

    /** Whether all owners want the same lock, and the latency is that of the wait for it. */
    boolean isContended() {
        return switch (workload) {
            case "W2", "W3", "W8a", "W8b", "W9a", "W9b", "W9c", "W11a", "W11b", "W16" -> true;
            default -> false;
        };
    }

    /** Whether several clients have owners. */
    boolean hasManyClients() {
        return switch (workload) {
            case "W3", "W8b", "W9c", "W11b", "W16" -> true;
            default -> false;
        };
    }

    /** Whether a client unlocks for another client that waits. */
    boolean isHandOver() {
        return workload.equals("W4") || workload.equals("W8w");
    }

    /** Whether the locks are fair ones. */
    boolean isFair() {
        return workload.startsWith("W8");
    }

    /** Of each client: they come after its owners. */
    int writers() {
        return workload.equals("W9b") || workload.equals("W9c") ? 1 : 0;
    }

    boolean isAsync() {
        return "async".equals(api);
    }
}

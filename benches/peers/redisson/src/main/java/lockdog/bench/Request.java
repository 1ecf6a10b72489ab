package lockdog.bench;

import com.google.gson.Gson;
import com.google.gson.JsonElement;
import com.google.gson.annotations.SerializedName;
import java.util.List;

/**
 * One cell of the benchmarks.
 *
 * @param urls one server; five for W6
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
        return workload.equals("W2") || workload.equals("W3");
    }

    boolean isAsync() {
        return "async".equals(api);
    }
}

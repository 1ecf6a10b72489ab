package lockdog.bench;

import com.google.gson.JsonArray;
import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import java.util.List;
import java.util.Objects;
import java.util.stream.IntStream;
import java.util.stream.LongStream;
import org.HdrHistogram.Histogram;

/** The fields of a result. */
final class Report {
    private static final double MICROSECOND = 1_000;

    private Report() {}

    static JsonObject of(Request request, Phase phase) {
        List<Tally> owners = ofRole(request, phase.tallies, false);
        List<Tally> writers = ofRole(request, phase.tallies, true);
        long[] pairs = pairs(request, owners);
        long failures = phase.tallies.stream().mapToLong(Tally::failures).sum();
        JsonObject report = new JsonObject();
        // W6 may fail all the time, and that is a result.
        if (failures > 0 && LongStream.of(pairs).sum() == 0 && !request.workload().equals("W6")) {
            report.addProperty("failed", firstFailure(phase.tallies));
            return report;
        }
        report.addProperty("seconds", phase.seconds());
        report.addProperty("pairs", LongStream.of(pairs).sum());
        latencies(report, Tally.latencies(owners), "");
        report.addProperty("cpu_s", phase.cpuSeconds());
        report.addProperty("failures", failures);
        if (request.isContended()) {
            shares(report, "share", pairs);
        }
        if (!writers.isEmpty()) {
            report.addProperty("writes", LongStream.of(pairs(request, writers)).sum());
            latencies(report, Tally.latencies(writers), "write_");
        }
        if (request.hasManyClients()) {
            shares(report, "client_share", sums(pairs, request.owners()));
        }
        if (request.isHandOver()) {
            samples(report, phase.tallies.get(0).samples());
        }
        return report;
    }

    /** A client's owners are followed by its writers. */
    private static List<Tally> ofRole(Request request, List<Tally> all, boolean writers) {
        int ofClient = request.owners() + request.writers();
        return IntStream.range(0, all.size())
                .filter(i -> (i % ofClient >= request.owners()) == writers)
                .mapToObj(all::get)
                .toList();
    }

    private static long[] pairs(Request request, List<Tally> tallies) {
        return tallies.stream()
                .mapToLong(tally -> request.isContended() ? tally.pairsInTime() : tally.pairs())
                .toArray();
    }

    private static String firstFailure(List<Tally> tallies) {
        return tallies.stream()
                .map(Tally::firstFailure)
                .filter(Objects::nonNull)
                .findFirst()
                .map(Exception::toString)
                .orElse("unknown");
    }

    private static void latencies(JsonObject report, Histogram all, String whose) {
        if (all.getTotalCount() == 0) {
            List.of("p50_us", "p99_us", "max_us")
                    .forEach(key -> report.add(whose + key, JsonNull.INSTANCE));
            return;
        }
        report.addProperty(whose + "p50_us", all.getValueAtPercentile(50) / MICROSECOND);
        report.addProperty(whose + "p99_us", all.getValueAtPercentile(99) / MICROSECOND);
        report.addProperty(whose + "max_us", all.getMaxValue() / MICROSECOND);
    }

    /** The smallest and the largest part of the pairs, where 1 is a fair one. */
    private static void shares(JsonObject report, String what, long[] pairs) {
        double fair = Math.max(1, LongStream.of(pairs).sum()) / (double) pairs.length;
        report.addProperty("min_" + what, LongStream.of(pairs).min().orElse(0) / fair);
        report.addProperty("max_" + what, LongStream.of(pairs).max().orElse(0) / fair);
    }

    private static long[] sums(long[] pairs, int owners) {
        return IntStream.range(0, pairs.length / owners)
                .mapToLong(client ->
                        LongStream.of(pairs).skip((long) client * owners).limit(owners).sum())
                .toArray();
    }

    private static void samples(JsonObject report, long[] nanoseconds) {
        JsonArray samples = new JsonArray();
        LongStream.of(nanoseconds).forEach(sample -> samples.add(sample / MICROSECOND));
        report.add("samples_us", samples);
    }
}

package lockdog.bench;

import java.util.Arrays;
import java.util.List;
import org.HdrHistogram.Histogram;
import org.HdrHistogram.IntCountsHistogram;

/** What one owner counts. Synchronized for those that were given up and count on. */
final class Tally {
    private static final long MICROSECOND = 1_000;
    private static final long LONGEST = 300_000_000_000L;
    private static final int DIGITS = 3;

    private final IntCountsHistogram latencies = new IntCountsHistogram(MICROSECOND, LONGEST, DIGITS);
    /** The first ones as they are, as many as there is room for. */
    private final long[] samples;
    private long pairs;
    /** Of {@link #pairs}, those that were done when the time was over. */
    private long pairsInTime;
    private long failures;
    private Exception firstFailure;

    Tally(int keep) {
        samples = new long[keep];
    }

    /** {@code latency} in nanoseconds. */
    synchronized void pair(long latency, boolean inTime) {
        latencies.recordValue(Math.min(latency, LONGEST));
        if (pairs < samples.length) {
            samples[(int) pairs] = latency;
        }
        pairs++;
        if (inTime) {
            pairsInTime++;
        }
    }

    synchronized void failed(Exception failure) {
        failures++;
        if (firstFailure == null) {
            firstFailure = failure;
        }
    }

    synchronized long pairs() {
        return pairs;
    }

    synchronized long pairsInTime() {
        return pairsInTime;
    }

    synchronized long failures() {
        return failures;
    }

    /** Null if nothing failed. */
    synchronized Exception firstFailure() {
        return firstFailure;
    }

    synchronized long[] samples() {
        return Arrays.copyOf(samples, (int) Math.min(pairs, samples.length));
    }

    static Histogram latencies(List<Tally> tallies) {
        Histogram all = new Histogram(MICROSECOND, LONGEST, DIGITS);
        for (Tally tally : tallies) {
            synchronized (tally) {
                all.add(tally.latencies);
            }
        }
        return all;
    }
}

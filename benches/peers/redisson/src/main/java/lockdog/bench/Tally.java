package lockdog.bench;

import org.HdrHistogram.IntCountsHistogram;

/** What one owner counts; read by others when it has ended, or was given up. */
final class Tally {
    private static final long MICROSECOND = 1_000;
    private static final long LONGEST = 300_000_000_000L;
    private static final int DIGITS = 3;

    final IntCountsHistogram latencies = new IntCountsHistogram(MICROSECOND, LONGEST, DIGITS);
    /** The first samples as they are, in nanoseconds; as many as there is room for. */
    final long[] samples;
    long pairs;
    /** Of {@link #pairs}, those that were done when the time was over. */
    long pairsInTime;
    long failures;
    Exception firstFailure;

    Tally(int keep) {
        samples = new long[keep];
    }

    void pair(long latency, boolean inTime) {
        latencies.recordValue(Math.min(latency, LONGEST));
        if (pairs < samples.length) {
            samples[(int) pairs] = latency;
        }
        pairs++;
        if (inTime) {
            pairsInTime++;
        }
    }

    void failed(Exception failure) {
        failures++;
        if (firstFailure == null) {
            firstFailure = failure;
        }
    }
}

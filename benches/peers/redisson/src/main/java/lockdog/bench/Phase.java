package lockdog.bench;

import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

/**
 * Lets owners repeat their work for a while and measures it: from the moment when all stand ready to
 * that when the last has ended its pair, or the time was over.
 */
final class Phase {
    /** How long a pair that is under way when the time is over is waited for. */
    private static final long PATIENCE_SECONDS = 25;

    private static final OperatingSystemMXBean PROCESS =
            ManagementFactory.getPlatformMXBean(OperatingSystemMXBean.class);

    final List<Tally> tallies = new ArrayList<>();
    private final CountDownLatch ready;
    private final CompletableFuture<Void> start = new CompletableFuture<>();
    private final CountDownLatch ended;
    private volatile boolean timeIsOver;
    private double seconds;
    private double cpuSeconds;

    private Phase(int owners) {
        ready = new CountDownLatch(owners);
        ended = new CountDownLatch(owners);
    }

    /**
     * @param toTheLast whether a pair counts that ends after the time, and the time up to its end
     * @param keep how many samples of an owner are kept as they are
     */
    static Phase run(List<? extends Owner> owners, double seconds, boolean toTheLast, int keep)
            throws InterruptedException {
        Phase phase = new Phase(owners.size());
        for (Owner owner : owners) {
            Tally tally = new Tally(keep);
            phase.tallies.add(tally);
            owner.start(phase, tally);
        }
        if (!phase.ready.await(PATIENCE_SECONDS, TimeUnit.SECONDS)) {
            throw new IllegalStateException("not all owners are ready after 25 s");
        }
        phase.measure(seconds, toTheLast);
        return phase;
    }

    private void measure(double window, boolean toTheLast) throws InterruptedException {
        long cpu = PROCESS.getProcessCpuTime();
        long begin = System.nanoTime();
        start.complete(null);
        sleepUntil(begin + (long) (window * 1e9));
        timeIsOver = true;
        if (!toTheLast) {
            stopClocks(begin, cpu);
        }
        ended.await(PATIENCE_SECONDS, TimeUnit.SECONDS);
        if (toTheLast) {
            stopClocks(begin, cpu);
        }
    }

    private void stopClocks(long begin, long cpu) {
        seconds = (System.nanoTime() - begin) / 1e9;
        cpuSeconds = (PROCESS.getProcessCpuTime() - cpu) / 1e9;
    }

    double seconds() {
        return seconds;
    }

    double cpuSeconds() {
        return cpuSeconds;
    }

    /** Called by an owner that stands ready; what it returns is complete when the time begins. */
    CompletableFuture<Void> ready() {
        ready.countDown();
        return start;
    }

    boolean timeIsOver() {
        return timeIsOver;
    }

    /** Called by an owner that does nothing more. */
    void ended() {
        ended.countDown();
    }

    boolean isOver() {
        return ended.getCount() == 0;
    }

    void awaitEnd() {
        try {
            ended.await();
        } catch (InterruptedException e) {
            // Nothing interrupts the threads of this program.
            throw new IllegalStateException(e);
        }
    }

    /** A park may end early. */
    static void sleepUntil(long nanoTime) {
        for (long rest = nanoTime - System.nanoTime(); rest > 0; rest = nanoTime - System.nanoTime()) {
            LockSupport.parkNanos(rest);
        }
    }

    /** A worker that repeats work, on a thread of its own or none. */
    interface Owner {
        /** Returns at once; notifies {@code phase} when it is ready and when it has ended. */
        void start(Phase phase, Tally tally);
    }
}

package lockdog.bench;

import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.ThreadLocalRandom;
import org.redisson.api.RLock;

/**
 * W4: {@code held} is unlocked while another client, on a thread of its own, waits in
 * {@code awaited.lock()}; the latency is that of the wake-up.
 */
final class HandOver implements ThreadOwner.Work {
    private static final long MILLISECOND = 1_000_000;

    private final RLock held;
    private final RLock awaited;
    private final ExecutorService waiter = Executors.newSingleThreadExecutor(task -> {
        Thread thread = new Thread(task);
        thread.setDaemon(true);
        return thread;
    });

    HandOver(RLock held, RLock awaited) {
        this.held = held;
        this.awaited = awaited;
    }

    @Override
    public void begin() {
        held.lock();
    }

    @Override
    public long pair() throws Exception {
        Future<Long> acquired = waiter.submit(() -> {
            awaited.lock();
            long at = System.nanoTime();
            awaited.unlock();
            return at;
        });
        // Two to three, so that it surely waits, and no rhythm comes about.
        long pause = 2 * MILLISECOND + ThreadLocalRandom.current().nextLong(MILLISECOND);
        Phase.sleepUntil(System.nanoTime() + pause);
        long released = System.nanoTime();
        held.unlock();
        long woken = acquired.get() - released;
        held.lock();
        return woken;
    }

    @Override
    public void end() {
        held.unlock();
        waiter.shutdown();
    }
}

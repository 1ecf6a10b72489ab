package lockdog.bench;

import java.util.concurrent.CompletionException;
import org.redisson.api.RLock;

/** An owner without a thread: each call of the asynchronous API follows from the one before. */
final class Chain implements Phase.Owner {
    private final RLock lock;
    private final long threadId;
    private Phase phase;
    private Tally tally;

    /** {@code threadId} distinguishes owners, where threads have an id of their own. */
    Chain(RLock lock, long threadId) {
        this.lock = lock;
        this.threadId = threadId;
    }

    @Override
    public void start(Phase phase, Tally tally) {
        this.phase = phase;
        this.tally = tally;
        phase.ready().thenRun(this::next);
    }

    private void next() {
        if (phase.timeIsOver()) {
            phase.ended();
            return;
        }
        long begin = System.nanoTime();
        lock.lockAsync(threadId)
                .thenCompose(locked -> lock.unlockAsync(threadId))
                .whenComplete((unlocked, failure) -> {
                    if (failure == null) {
                        tally.pair(System.nanoTime() - begin, !phase.timeIsOver());
                    } else {
                        tally.failed(new CompletionException(failure));
                    }
                    next();
                });
    }
}

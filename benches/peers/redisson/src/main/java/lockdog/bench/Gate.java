package lockdog.bench;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.redisson.api.RCountDownLatch;
import org.redisson.api.RedissonClient;

/** W13: a latch with many waiters of several clients; the latency is from the count-down until the last knows. */
final class Gate implements ThreadOwner.Work {
    private static final long UNTIL_ALL_WAIT = 100_000_000;

    private final List<RedissonClient> clients;
    /** Of each client. */
    private final int waiters;
    private final String name;
    private int turn;

    Gate(List<RedissonClient> clients, int waiters, String name) {
        this.clients = clients;
        this.waiters = waiters;
        this.name = name;
    }

    /** By futures: a thousand threads would measure their scheduler. */
    @Override
    public long pair() {
        String own = name + ":" + System.nanoTime() + ":" + turn++;
        RCountDownLatch first = clients.get(0).getCountDownLatch(own);
        if (!first.trySetCount(1)) {
            throw new IllegalStateException(own + " has a count already");
        }
        List<CompletableFuture<Long>> waiting = new ArrayList<>();
        for (RedissonClient client : clients) {
            for (int i = 0; i < waiters; i++) {
                waiting.add(client.getCountDownLatch(own)
                        .awaitAsync()
                        .toCompletableFuture()
                        .thenApply(done -> System.nanoTime()));
            }
        }
        Phase.sleepUntil(System.nanoTime() + UNTIL_ALL_WAIT);
        long begin = System.nanoTime();
        first.countDown();
        long last = begin;
        for (CompletableFuture<Long> waiter : waiting) {
            long notified = waiter.join();
            if (notified < begin) {
                throw new IllegalStateException("a waiter was notified before the latch was at zero");
            }
            last = Math.max(last, notified);
        }
        return last - begin;
    }
}

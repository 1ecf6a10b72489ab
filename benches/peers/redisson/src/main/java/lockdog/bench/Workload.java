package lockdog.bench;

import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import org.redisson.RedissonRedLock;
import org.redisson.api.RLock;
import org.redisson.api.RReadWriteLock;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;

/**
 * What the owners of a cell do. All locks are taken by {@code lock()} without a lease, so that the
 * watchdog keeps them.
 */
final class Workload {
    private static final int SAMPLES = 2_000;
    /** Of each semaphore. */
    private static final int PERMITS = 4;
    private static final Set<String> KNOWN = Set.of(
            "W1", "W2", "W3", "W4", "W6", "W7", "W8a", "W8b", "W8c", "W8w", "W9a", "W9b", "W9c", "W11a",
            "W11b", "W11c", "W13", "W16", "W18");

    private final Request request;
    private final Clients clients;

    Workload(Request request, Clients clients) {
        this.request = request;
        this.clients = clients;
    }

    static boolean isKnown(String workload) {
        return KNOWN.contains(workload);
    }

    /**
     * Where owners contend, the window ends with the time: those who still wait would stretch it by
     * pauses in which hardly any thread is served. Elsewhere a pair may take longer than the window, and
     * then it is the result.
     */
    Phase run(double seconds) throws InterruptedException {
        int keep = request.isHandOver() ? SAMPLES : 0;
        return Phase.run(owners(), seconds, !request.isContended(), keep);
    }

    private List<Phase.Owner> owners() {
        List<Phase.Owner> owners = new ArrayList<>();
        if (request.isHandOver()) {
            owners.add(new ThreadOwner(new HandOver(lock(0, request.name()), lock(1, request.name()))));
            return owners;
        }
        if (request.workload().equals("W13")) {
            owners.add(new ThreadOwner(new Gate(clients.all(), request.owners(), request.name())));
            return owners;
        }
        int used = request.hasManyClients() ? clients.all().size() : 1;
        for (int client = 0; client < used; client++) {
            for (int i = 0; i < request.owners(); i++) {
                owners.add(owner(client, i));
            }
            for (int i = 0; i < request.writers(); i++) {
                owners.add(new ThreadOwner(waiting(readWrite(client).writeLock())));
            }
        }
        return owners;
    }

    private Phase.Owner owner(int client, int i) {
        String own = request.name() + ":" + i;
        return switch (request.workload()) {
            case "W1" -> request.isAsync()
                    ? new Chain(lock(0, own), i + 1)
                    : new ThreadOwner(pairs(lock(0, own)));
            case "W2", "W3", "W8a", "W8b", "W16" ->
                new ThreadOwner(waiting(lock(client, request.name())));
            case "W8c", "W18" -> new ThreadOwner(pairs(lock(client, own)));
            case "W9a", "W9b", "W9c" -> new ThreadOwner(waiting(readWrite(client).readLock()));
            case "W11a", "W11b" -> new ThreadOwner(permits(semaphore(client, request.name()), true));
            case "W11c" -> new ThreadOwner(permits(semaphore(client, own), false));
            case "W6" -> new ThreadOwner(pairs(redLock(own)));
            case "W7" -> new ThreadOwner(new Nested(lock(0, own)));
            default -> throw new IllegalArgumentException(request.workload());
        };
    }

    private RLock lock(int client, String name) {
        RedissonClient redisson = clients.all().get(client);
        return request.isFair() ? redisson.getFairLock(name) : redisson.getLock(name);
    }

    private RReadWriteLock readWrite(int client) {
        return clients.all().get(client).getReadWriteLock(request.name());
    }

    private RSemaphore semaphore(int client, String name) {
        RSemaphore semaphore = clients.all().get(client).getSemaphore(name);
        // False if another owner was first.
        semaphore.trySetPermits(PERMITS);
        return semaphore;
    }

    // Deprecated, and all that Redisson has for a majority of independent servers.
    @SuppressWarnings("deprecation")
    private RLock redLock(String name) {
        List<RedissonClient> all = clients.all();
        return new RedissonRedLock(
                all.stream().map(client -> client.getLock(name)).toArray(RLock[]::new));
    }

    private static long pair(RLock lock) {
        long begin = System.nanoTime();
        lock.lock();
        lock.unlock();
        return System.nanoTime() - begin;
    }

    private static ThreadOwner.Work pairs(RLock lock) {
        return () -> pair(lock);
    }

    /** As {@link #pairs}, but the latency is that of the wait alone. */
    private static ThreadOwner.Work waiting(RLock lock) {
        return () -> {
            long begin = System.nanoTime();
            lock.lock();
            long waited = System.nanoTime() - begin;
            lock.unlock();
            return waited;
        };
    }

    /** {@code waits}: the latency is that of the wait alone. */
    private static ThreadOwner.Work permits(RSemaphore semaphore, boolean waits) {
        return () -> {
            long begin = System.nanoTime();
            semaphore.acquire();
            long waited = System.nanoTime() - begin;
            semaphore.release();
            return waits ? waited : System.nanoTime() - begin;
        };
    }

    /** Re-entry: the outer hold lasts all the time. */
    private record Nested(RLock lock) implements ThreadOwner.Work {
        @Override
        public void begin() {
            lock.lock();
        }

        @Override
        public long pair() {
            return Workload.pair(lock);
        }

        @Override
        public void end() {
            lock.unlock();
        }
    }
}

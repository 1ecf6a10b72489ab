package lockdog.bench;

import java.util.ArrayList;
import java.util.List;
import org.redisson.Redisson;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/** The clients of one cell. */
final class Clients {
    // Redisson's own defaults.
    private static final int POOL = 64;
    private static final int IDLE = 24;
    private static final int SUBSCRIPTIONS = 50;

    private final List<RedissonClient> clients = new ArrayList<>();
    private final List<Phase> phases = new ArrayList<>();

    private Clients() {}

    /** W6 has one client for each server, W18 one for the cluster, the others as many as asked for, a hand-over always two. */
    static Clients connect(Request request) {
        Clients made = new Clients();
        try {
            switch (request.workload()) {
                case "W6" -> request.urls().forEach(url -> made.add(url, request.owners()));
                case "W18" -> made.addOfCluster(request.urls(), request.owners());
                case "W4", "W8w" -> made.add(request, 2);
                // No call of these waits for a connection.
                case "W13" -> {
                    for (int i = 0; i < request.clients(); i++) {
                        made.add(request.urls().get(0), 1);
                    }
                }
                default -> made.add(request, Math.max(1, request.clients()));
            }
        } catch (RuntimeException e) {
            made.close();
            throw e;
        }
        return made;
    }

    List<RedissonClient> all() {
        return clients;
    }

    /** A thread that is still in a call when a phase is given up must keep its client. */
    void closeAfter(Phase phase) {
        phases.add(phase);
    }

    /**
     * At once if no thread is in a call any more. Otherwise when they have come back, which may be never:
     * a RedLock on clients that are shut down would try again without a pause.
     */
    void close() {
        if (phases.stream().allMatch(Phase::isOver)) {
            shutDown();
            return;
        }
        Thread later = new Thread(() -> {
            phases.forEach(Phase::awaitEnd);
            shutDown();
        });
        later.setDaemon(true);
        later.start();
    }

    private void shutDown() {
        clients.forEach(RedissonClient::shutdown);
    }

    private void add(Request request, int count) {
        for (int i = 0; i < count; i++) {
            add(request.urls().get(0), request.owners());
        }
    }

    /**
     * All at its default, except that no owner has to wait for a connection, or for one to be opened:
     * that would measure a setting which every user with that many threads changes.
     */
    private void add(String url, int owners) {
        Config config = new Config();
        config.useSingleServer()
                .setAddress(url)
                .setConnectionPoolSize(Math.max(POOL, owners))
                .setConnectionMinimumIdleSize(Math.max(IDLE, owners))
                .setSubscriptionConnectionPoolSize(Math.max(SUBSCRIPTIONS, owners));
        clients.add(Redisson.create(config));
    }

    private void addOfCluster(List<String> urls, int owners) {
        Config config = new Config();
        config.useClusterServers()
                .addNodeAddress(urls.toArray(String[]::new))
                .setMasterConnectionPoolSize(Math.max(POOL, owners))
                .setMasterConnectionMinimumIdleSize(Math.max(IDLE, owners))
                .setSubscriptionConnectionPoolSize(Math.max(SUBSCRIPTIONS, owners));
        clients.add(Redisson.create(config));
    }
}

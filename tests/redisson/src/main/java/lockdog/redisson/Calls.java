package lockdog.redisson;

import static java.util.concurrent.TimeUnit.MILLISECONDS;

import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import org.redisson.RedissonMultiLock;
import org.redisson.RedissonRedLock;
import org.redisson.api.RBucket;
import org.redisson.api.RLock;
import org.redisson.api.RReadWriteLock;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;

/**
 * The calls that a logical thread makes on a lock: {@code name} on the first server, as the method
 * {@code getter} of its client gives it, or all of
 * {@code locks}, each a {@code name} on a {@code server} from its {@code getter}, as one of the {@code kind} "multi"
 * or "red".
 * A name is the lock's before any prefix. The call "object" is of an object that is no lock: {@link ObjectCalls}.
 */
final class Calls {
    private final List<RedissonClient> clients;

    /** One client for each server. */
    Calls(List<RedissonClient> clients) {
        this.clients = clients;
    }

    Object perform(JsonObject call) throws Throwable {
        if (call.get("call").getAsString().equals("object")) {
            return ObjectCalls.perform(clients.get(0), call);
        }
        // Each call has a new lock object, because Redisson stores an explicit lease in the object and
        // would use it for the next lock().
        RLock lock = lockOf(call);
        String what = call.get("call").getAsString();
        return switch (what) {
            case "lock" -> lock(lock, call);
            case "tryLock" -> tryLock(lock, call);
            case "unlock" -> {
                lock.unlock();
                yield null;
            }
            case "forceUnlock" -> lock.forceUnlock();
            case "isLocked" -> lock.isLocked();
            case "isHeldByCurrentThread" -> lock.isHeldByCurrentThread();
            case "holdCount" -> lock.getHoldCount();
            case "remainTimeToLive" -> lock.remainTimeToLive();
            case "lockAndGetToken", "getToken" -> token(lock, what);
            case "cell" -> cell(lock, call);
            default -> throw new IllegalArgumentException("unknown call " + what);
        };
    }

    // RedissonRedLock is deprecated but still used.
    @SuppressWarnings("deprecation")
    private RLock lockOf(JsonObject call) {
        if (call.has("values")) {
            return lockOfValues(call);
        }
        if (!call.has("locks")) {
            String getter = call.has("getter") ? call.get("getter").getAsString() : "getLock";
            return lockFrom(clients.get(0), getter, call.get("name").getAsString());
        }
        JsonArray parts = call.getAsJsonArray("locks");
        RLock[] locks = new RLock[parts.size()];
        for (int i = 0; i < locks.length; i++) {
            JsonObject part = parts.get(i).getAsJsonObject();
            RedissonClient client = clients.get(part.get("server").getAsInt());
            String getter = part.has("getter") ? part.get("getter").getAsString() : "getLock";
            locks[i] = lockFrom(client, getter, part.get("name").getAsString());
        }
        String kind = call.get("kind").getAsString();
        return switch (kind) {
            case "multi" -> new RedissonMultiLock(locks);
            case "red" -> new RedissonRedLock(locks);
            default -> throw new IllegalArgumentException("unknown kind " + kind);
        };
    }

    /** The lock of {@code values} of the group {@code name}. By name, because older Redissons have none. */
    private RLock lockOfValues(JsonObject call) {
        List<Object> values = new ArrayList<>();
        call.getAsJsonArray("values").forEach(value -> values.add(value.getAsString()));
        try {
            Object lock =
                    RedissonClient.class
                            .getMethod("getMultiLock", String.class, Collection.class)
                            .invoke(clients.get(0), call.get("name").getAsString(), values);
            return (RLock) lock;
        } catch (ReflectiveOperationException e) {
            throw new IllegalArgumentException("no method getMultiLock(group, values)", e);
        }
    }

    /**
     * By name, because older Redissons have not all of these methods. A getter may have two parts:
     * {@code getReadWriteLock.readLock}.
     */
    private RLock lockFrom(RedissonClient client, String getter, String name) {
        String[] parts = getter.split("\\.");
        try {
            Object found =
                    RedissonClient.class
                            .getMethod(parts[0], String.class)
                            .invoke(client, name);
            if (parts.length == 1) {
                return (RLock) found;
            }
            return (RLock) RReadWriteLock.class.getMethod(parts[1]).invoke(found);
        } catch (ReflectiveOperationException e) {
            throw new IllegalArgumentException("no method " + getter, e);
        }
    }

    /** By name, because older Redissons have no fenced lock. */
    private static Object token(RLock lock, String method) {
        try {
            return lock.getClass().getMethod(method).invoke(lock);
        } catch (ReflectiveOperationException e) {
            throw new IllegalArgumentException("cannot call " + method, e);
        }
    }

    /** {@code leaseMs} or the watchdog. */
    private static Object lock(RLock lock, JsonObject call) {
        if (call.has("leaseMs")) {
            lock.lock(call.get("leaseMs").getAsLong(), MILLISECONDS);
        } else {
            lock.lock();
        }
        return null;
    }

    /** One attempt, or {@code waitMs}; {@code leaseMs} or the watchdog. */
    private static boolean tryLock(RLock lock, JsonObject call) throws InterruptedException {
        long wait = call.has("waitMs") ? call.get("waitMs").getAsLong() : 0;
        if (call.has("leaseMs")) {
            return lock.tryLock(wait, call.get("leaseMs").getAsLong(), MILLISECONDS);
        }
        if (call.has("waitMs")) {
            return lock.tryLock(wait, MILLISECONDS);
        }
        return lock.tryLock();
    }

    /**
     * {@code rounds} times: lock, read the string {@code key} of the first server, sleep {@code pauseMs}, write the number
     * plus one, unlock. Two holders at a time lose a count, which no atomic increment would show.
     */
    private Object cell(RLock lock, JsonObject call) throws InterruptedException {
        RBucket<String> cell =
                clients.get(0).getBucket(call.get("key").getAsString(), StringCodec.INSTANCE);
        long pause = call.get("pauseMs").getAsLong();
        for (int round = call.get("rounds").getAsInt(); round > 0; round--) {
            lock.lock();
            try {
                String value = cell.get();
                Thread.sleep(pause);
                cell.set(Long.toString(value == null ? 1 : Long.parseLong(value) + 1));
            } finally {
                lock.unlock();
            }
        }
        return null;
    }
}

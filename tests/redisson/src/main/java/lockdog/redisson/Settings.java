package lockdog.redisson;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.List;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.BaseConfig;
import org.redisson.config.ClusterServersConfig;
import org.redisson.config.Config;
import org.redisson.config.ReadMode;
import org.redisson.config.SentinelServersConfig;
import org.redisson.config.SubscriptionMode;

/**
 * What a session begins with: {@code yaml}, a configuration file in that form, or {@code urls}, one for each server, where {@code redis+sentinel://host:port,../master}
 * is the master of sentinels and {@code redis+cluster://host:port,..} a cluster, and optionally
 * {@code watchdogTimeoutMs}, {@code namePrefix}, {@code timeoutMs}, {@code connectTimeoutMs},
 * {@code retryAttempts}, and {@code stringCodec} for that codec. Whatever is not given has Redisson's default,
 * the number of Netty's threads and of idle connections apart.
 */
final class Settings {
    private Settings() {}

    /** One client's settings for each server. */
    static List<Config> parse(JsonObject settings) {
        if (settings.has("yaml")) {
            return List.of(file(settings.get("yaml").getAsString()));
        }
        List<Config> configs = new ArrayList<>();
        for (JsonElement url : settings.getAsJsonArray("urls")) {
            configs.add(client(url.getAsString(), settings));
        }
        return configs;
    }

    private static Config file(String yaml) {
        try {
            return Config.fromYAML(yaml);
        } catch (Exception failed) {
            // Redisson 3 declares a checked one here, and Redisson 4 none.
            throw new IllegalArgumentException(failed);
        }
    }

    private static Config client(String url, JsonObject settings) {
        Config config = new Config();
        // The default of 32 would start a thread for each of a client's 25 connections.
        config.setNettyThreads(4);
        BaseConfig<?> server = server(config, url);
        if (settings.has("watchdogTimeoutMs")) {
            config.setLockWatchdogTimeout(settings.get("watchdogTimeoutMs").getAsLong());
        }
        if (settings.has("namePrefix")) {
            setNamePrefix(config, server, settings.get("namePrefix").getAsString());
        }
        if (settings.has("stringCodec")) {
            config.setCodec(StringCodec.INSTANCE);
        }
        if (settings.has("timeoutMs")) {
            server.setTimeout(settings.get("timeoutMs").getAsInt());
        }
        if (settings.has("connectTimeoutMs")) {
            server.setConnectTimeout(settings.get("connectTimeoutMs").getAsInt());
        }
        if (settings.has("retryAttempts")) {
            server.setRetryAttempts(settings.get("retryAttempts").getAsInt());
        }
        return config;
    }

    private static BaseConfig<?> server(Config config, String url) {
        if (url.startsWith(SENTINEL)) {
            return sentinel(config.useSentinelServers(), url.substring(SENTINEL.length()));
        }
        if (url.startsWith(CLUSTER)) {
            return cluster(config.useClusterServers(), url.substring(CLUSTER.length()));
        }
        // The default of 24 would open so many for each client at once. More are opened when they are needed.
        return config.useSingleServer().setAddress(url).setConnectionMinimumIdleSize(IDLE);
    }

    private static SentinelServersConfig sentinel(SentinelServersConfig config, String rest) {
        String[] hostsAndMaster = rest.split("/");
        for (String host : hostsAndMaster[0].split(",")) {
            config.addSentinelAddress("redis://" + host);
        }
        return config.setMasterName(hostsAndMaster[1])
                .setReadMode(ReadMode.MASTER)
                .setSubscriptionMode(SubscriptionMode.MASTER);
    }

    private static ClusterServersConfig cluster(ClusterServersConfig config, String hosts) {
        for (String host : hosts.split(",")) {
            config.addNodeAddress("redis://" + host);
        }
        // The default of five seconds would make the tests slow.
        return config.setScanInterval(500)
                .setReadMode(ReadMode.MASTER)
                .setSubscriptionMode(SubscriptionMode.MASTER);
    }

    /** By reflection, because Redisson 4 moved the interface to another package and its setter to another class. */
    private static void setNamePrefix(Config config, BaseConfig<?> server, String prefix) {
        for (Object owner : List.of(config, server)) {
            for (Method setter : owner.getClass().getMethods()) {
                if (!setter.getName().equals("setNameMapper")) {
                    continue;
                }
                Class<?> type = setter.getParameterTypes()[0];
                Object mapper = Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type}, (self, method, args) ->
                        switch (method.getName()) {
                            case "map" -> prefix + args[0];
                            case "unmap" -> ((String) args[0]).substring(prefix.length());
                            case "toString" -> "names behind " + prefix;
                            case "hashCode" -> System.identityHashCode(self);
                            case "equals" -> self == args[0];
                            default -> throw new UnsupportedOperationException(method.toString());
                        });
                try {
                    setter.invoke(owner, mapper);
                } catch (ReflectiveOperationException failed) {
                    throw new IllegalStateException(failed);
                }
                return;
            }
        }
        throw new IllegalStateException("this Redisson knows no name mapper");
    }

    private static final int IDLE = 2;
    private static final String CLUSTER = "redis+cluster://";
    private static final String SENTINEL = "redis+sentinel://";
}

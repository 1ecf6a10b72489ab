package lockdog.redisson;

import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import org.redisson.config.Config;
import org.redisson.config.NameMapper;
import org.redisson.config.SingleServerConfig;

/**
 * The first line: {@code url}, and optionally {@code watchdogTimeoutMs}, {@code namePrefix},
 * {@code timeoutMs}, {@code connectTimeoutMs} and {@code retryAttempts}. Whatever is not given has
 * Redisson's default.
 */
final class Settings {
    private Settings() {}

    static Config parse(String line) {
        JsonObject settings = JsonParser.parseString(line).getAsJsonObject();
        Config config = new Config();
        SingleServerConfig server =
                config.useSingleServer().setAddress(settings.get("url").getAsString());
        if (settings.has("watchdogTimeoutMs")) {
            config.setLockWatchdogTimeout(settings.get("watchdogTimeoutMs").getAsLong());
        }
        if (settings.has("namePrefix")) {
            config.setNameMapper(new Prefix(settings.get("namePrefix").getAsString()));
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

    private record Prefix(String prefix) implements NameMapper {
        @Override
        public String map(String name) {
            return prefix + name;
        }

        @Override
        public String unmap(String name) {
            return name.substring(prefix.length());
        }
    }
}

package lockdog.redisson;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.util.ArrayList;
import java.util.List;
import org.redisson.config.Config;
import org.redisson.config.NameMapper;
import org.redisson.config.SingleServerConfig;

/**
 * The first line: {@code url}, and optionally {@code more}, the URLs of further servers, for a client
 * each, {@code watchdogTimeoutMs}, {@code namePrefix}, {@code timeoutMs}, {@code connectTimeoutMs} and
 * {@code retryAttempts}. Whatever is not given has Redisson's default.
 */
final class Settings {
    private Settings() {}

    /** One for each server. */
    static List<Config> parse(String line) {
        JsonObject settings = JsonParser.parseString(line).getAsJsonObject();
        List<Config> configs = new ArrayList<>();
        configs.add(config(settings.get("url").getAsString(), settings));
        if (settings.has("more")) {
            for (JsonElement url : settings.get("more").getAsJsonArray()) {
                configs.add(config(url.getAsString(), settings));
            }
        }
        return configs;
    }

    private static Config config(String url, JsonObject settings) {
        Config config = new Config();
        SingleServerConfig server = config.useSingleServer().setAddress(url);
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

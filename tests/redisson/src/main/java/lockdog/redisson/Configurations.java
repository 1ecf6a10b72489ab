package lockdog.redisson;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import com.google.gson.JsonPrimitive;
import java.beans.Introspector;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.nio.charset.StandardCharsets;
import java.util.Collection;
import java.util.Map;
import java.util.TreeSet;
import org.redisson.Redisson;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;
import org.redisson.misc.RedisURI;

/**
 * Says what Redisson makes of a configuration. Every line of standard input is a question, every
 * line of standard output its answer:
 *
 * <ul>
 *   <li>{@code {"setters": ["Config", ..]}}: the properties that these classes have a setter for
 *   <li>{@code {"load": yaml, "properties": {..}}}: the values of a file, with system properties for its variables
 *   <li>{@code {"write": section, "address": ..}}: the file that Redisson itself writes of its defaults
 *   <li>{@code {"address": ..}}: the parts of an address
 *   <li>{@code {"lock": name, "file": yaml}}: connects by a file, and acquires a lock if it is free
 *   <li>{@code {"unlock": name}}: releases it and disconnects
 * </ul>
 *
 * An exception is the answer {@code {"error": text}}.
 */
public final class Configurations {
    private static RedissonClient client;

    private Configurations() {}

    public static void main(String[] args) throws IOException {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        // Output of a library must not be mistaken for an answer.
        System.setOut(System.err);
        Gson gson = new GsonBuilder().serializeNulls().create();
        BufferedReader input =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            JsonObject answer;
            try {
                answer = answer(JsonParser.parseString(line).getAsJsonObject());
            } catch (Exception | StackOverflowError e) {
                answer = new JsonObject();
                answer.addProperty("error", e.toString());
            }
            answers.println(gson.toJson(answer));
        }
        // Remaining threads of Redisson would keep the process running.
        Runtime.getRuntime().halt(0);
    }

    private static JsonObject answer(JsonObject question) throws Exception {
        if (question.has("setters")) {
            return setters(question.getAsJsonArray("setters"));
        }
        if (question.has("write")) {
            return write(question.get("write").getAsString(), question.get("address").getAsString());
        }
        if (question.has("lock")) {
            JsonObject answer = new JsonObject();
            client = Redisson.create(Config.fromYAML(question.get("file").getAsString()));
            answer.addProperty("locked", client.getLock(question.get("lock").getAsString()).tryLock());
            return answer;
        }
        if (question.has("unlock")) {
            client.getLock(question.get("unlock").getAsString()).unlock();
            client.shutdown();
            return new JsonObject();
        }
        if (question.has("address")) {
            return address(question.get("address").getAsString());
        }
        Map<String, JsonElement> properties = question.getAsJsonObject("properties").asMap();
        properties.forEach((name, value) -> System.setProperty(name, value.getAsString()));
        try {
            return values(Config.fromYAML(question.get("load").getAsString()));
        } finally {
            properties.keySet().forEach(System::clearProperty);
        }
    }

    /** The reader of the files uses setters of any visibility. */
    private static JsonObject setters(JsonArray classes) throws ClassNotFoundException {
        JsonObject all = new JsonObject();
        for (JsonElement name : classes) {
            TreeSet<String> found = new TreeSet<>();
            Class<?> type = Class.forName("org.redisson.config." + name.getAsString());
            for (Method method : type.getDeclaredMethods()) {
                if (method.getName().startsWith("set") && method.getParameterCount() == 1 && !method.isSynthetic()) {
                    found.add(Introspector.decapitalize(method.getName().substring(3)));
                }
            }
            JsonArray names = new JsonArray();
            found.forEach(names::add);
            all.add(name.getAsString(), names);
        }
        return all;
    }

    private static JsonObject write(String section, String address) throws IOException {
        Config config = new Config();
        switch (section) {
            case "singleServerConfig" -> config.useSingleServer().setAddress(address);
            case "sentinelServersConfig" -> config.useSentinelServers()
                    .setMasterName("orders")
                    .addSentinelAddress(address);
            case "clusterServersConfig" -> config.useClusterServers().addNodeAddress(address);
            case "masterSlaveServersConfig" -> config.useMasterSlaveServers().setMasterAddress(address);
            case "replicatedServersConfig" -> config.useReplicatedServers().addNodeAddress(address);
            default -> throw new IllegalArgumentException(section);
        }
        JsonObject answer = new JsonObject();
        answer.addProperty("yaml", config.toYAML());
        return answer;
    }

    private static JsonObject address(String text) {
        RedisURI uri = new RedisURI(text);
        JsonObject parts = new JsonObject();
        parts.addProperty("host", uri.getHost());
        parts.addProperty("port", uri.getPort());
        parts.addProperty("ssl", uri.isSsl());
        parts.addProperty("username", uri.getUsername());
        parts.addProperty("password", uri.getPassword());
        return parts;
    }

    private static JsonObject values(Config config) throws ReflectiveOperationException {
        JsonObject answer = new JsonObject();
        answer.add("top", properties(config));
        for (String section : SECTIONS) {
            Method getter = Config.class.getDeclaredMethod("get" + section);
            getter.setAccessible(true);
            Object servers = getter.invoke(config);
            if (servers != null) {
                answer.add(Introspector.decapitalize(section), properties(servers));
            }
        }
        return answer;
    }

    private static JsonObject properties(Object bean) throws ReflectiveOperationException {
        JsonObject values = new JsonObject();
        for (Method method : bean.getClass().getMethods()) {
            String name = method.getName();
            boolean reads = name.startsWith("get") || name.startsWith("is");
            if (!reads || method.getParameterCount() > 0 || Modifier.isStatic(method.getModifiers())) {
                continue;
            }
            String property = Introspector.decapitalize(name.substring(name.startsWith("is") ? 2 : 3));
            values.add(property, value(method.invoke(bean)));
        }
        return values;
    }

    private static JsonElement value(Object value) {
        if (value == null) {
            return JsonNull.INSTANCE;
        }
        if (value instanceof Number number) {
            return new JsonPrimitive(number);
        }
        if (value instanceof Boolean bool) {
            return new JsonPrimitive(bool);
        }
        if (value instanceof String || value instanceof Enum || value instanceof java.net.URL) {
            return new JsonPrimitive(value.toString());
        }
        if (value instanceof Collection<?> items) {
            JsonArray array = new JsonArray();
            items.forEach(item -> array.add(value(item)));
            return array;
        }
        if (value instanceof String[] items) {
            return value(java.util.List.of(items));
        }
        return new JsonPrimitive("a " + value.getClass().getSimpleName());
    }

    private static final String[] SECTIONS = {
        "SingleServerConfig", "SentinelServersConfig", "ClusterServersConfig", "MasterSlaveServersConfig",
        "ReplicatedServersConfig"
    };
}

package lockdog.redisson;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.redisson.api.RedissonClient;

/**
 * A call of an object that is no lock: the {@code method} of the object {@code name}, as the method
 * {@code getter} of the client gives it, with {@code args}, each an object with one key that names its
 * type: {@code int}, {@code long}, {@code ms} (a time, two parameters), {@code id} or {@code ids}.
 *
 * <p>Methods are found by name, because older Redissons have not all of them.
 */
final class ObjectCalls {
    private ObjectCalls() {}

    static Object perform(RedissonClient client, JsonObject call) throws Throwable {
        List<Class<?>> types = new ArrayList<>();
        List<Object> args = new ArrayList<>();
        boolean hasTime = false;
        for (JsonElement element : call.getAsJsonArray("args")) {
            JsonObject arg = element.getAsJsonObject();
            if (arg.has("int")) {
                types.add(int.class);
                args.add(arg.get("int").getAsInt());
            } else if (arg.has("long")) {
                types.add(long.class);
                args.add(arg.get("long").getAsLong());
            } else if (arg.has("ms")) {
                types.add(long.class);
                args.add(arg.get("ms").getAsLong());
                hasTime = true;
            } else if (arg.has("id")) {
                types.add(String.class);
                args.add(arg.get("id").getAsString());
            } else {
                types.add(List.class);
                args.add(texts(arg.getAsJsonArray("ids")));
            }
        }
        if (hasTime) {
            // All times have one unit.
            types.add(TimeUnit.class);
            args.add(TimeUnit.MILLISECONDS);
        }
        String method = call.get("method").getAsString();
        try {
            Method getter =
                    RedissonClient.class.getMethod(call.get("getter").getAsString(), String.class);
            Object object = getter.invoke(client, call.get("name").getAsString());
            return getter.getReturnType()
                    .getMethod(method, types.toArray(Class<?>[]::new))
                    .invoke(object, args.toArray());
        } catch (NoSuchMethodException e) {
            throw new IllegalArgumentException("no method " + method + types, e);
        } catch (InvocationTargetException e) {
            throw e.getCause();
        }
    }

    private static List<String> texts(JsonArray array) {
        List<String> texts = new ArrayList<>();
        array.forEach(text -> texts.add(text.getAsString()));
        return texts;
    }
}

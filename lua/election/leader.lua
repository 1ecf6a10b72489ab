-- Purpose: reads who leads, and the leader's value. It changes nothing.
--
-- KEYS[1]  the lock's hash
-- KEYS[2]  the leader's value, "field term number value"
-- ARGV[]   none
--
-- Returns
--   nil                   no leader
--   { field, ttl }        the leader's field and the TTL in milliseconds (-1: it has none); the leader published
--                         no value, or the holder is Redisson's fair lock of the same name
--   { field, ttl, text }  the text behind the field, "term number value"
--
-- A value counts only if its field is in the hash, so the value of a leader that died needs no clean-up.
-- Example: { a = 1 }, TTL 900, value "a 17 1 me" -> { "a", 900, "17 1 me" }; value "b 16 1 you" -> { "a", 900 }.

local hash = redis.call('hgetall', KEYS[1])
for i = 1, #hash, 2 do
    local field = hash[i]
    -- If the key is a read/write lock, its hash also has the field `mode`.
    if field ~= 'mode' then
        local ttl = redis.call('pttl', KEYS[1])
        local published = redis.pcall('get', KEYS[2])
        if type(published) == 'string' and string.sub(published, 1, #field + 1) == field .. ' ' then
            return { field, ttl, string.sub(published, #field + 2) }
        end
        return { field, ttl }
    end
end
return nil

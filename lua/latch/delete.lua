-- Purpose: deletes a latch, whatever its count, and notifies its waiters, once for each request.
--
-- KEYS[1]  the count, a number
-- KEYS[2]  the mark of the request, a string of lockdog's own
-- ARGV[1]  how long the mark is kept, in milliseconds: longer than the request may be repeated
-- ARGV[2]  the channel of the latch's messages
-- ARGV[3]  the command that publishes there: publish, or spublish on a cluster that supports it
--
-- Returns
--   1  there was a count, now or at an earlier run of the same request
--   0  there was none, now or at that earlier run; nothing was done
--   error WRONGTYPE: the key is not a count; nothing was done
--
-- Redisson publishes 1 here, which does not wake its own waiters. DEL is the first write, because a server
-- out of memory lets a script continue that has already written.
-- Example: count 3 -> no key, message "0", 1; once more -> 0.

local was = redis.call('get', KEYS[2])
if was then
    return was == '0' and 0 or 1
end
-- GET fails for a key of another type.
redis.call('get', KEYS[1])
local deleted = redis.call('del', KEYS[1])
redis.call('set', KEYS[2], deleted, 'px', ARGV[1])
if deleted == 1 then
    redis.pcall(ARGV[3], ARGV[2], '0')
end
return deleted

-- Purpose: gives a latch a count, if it has none.
--
-- KEYS[1]  the count, a number
-- KEYS[2]  the mark of the request, a string of lockdog's own
-- ARGV[1]  the count
-- ARGV[2]  how long the mark is kept, in milliseconds: longer than the request may be repeated
-- ARGV[3]  the channel of the latch's messages
-- ARGV[4]  the command that publishes there: publish, or spublish on a cluster that supports it
--
-- Returns
--   1  the count was set, now or by an earlier run of the same request
--   0  there was a count; nothing was done
--
-- The message 1 notifies the waiters that there is a count.
-- Example: nothing, 3 -> count 3, message "1", 1; once more -> 1; another request -> 0.

local was = redis.call('get', KEYS[2])
if was then
    return was == '0' and 0 or 1
end
if redis.call('exists', KEYS[1]) == 1 then
    -- A late repetition must not set the count after the present one is gone.
    redis.call('set', KEYS[2], '0', 'px', ARGV[2])
    return 0
end
redis.call('set', KEYS[2], '1', 'px', ARGV[2])
redis.call('set', KEYS[1], ARGV[1])
redis.pcall(ARGV[4], ARGV[3], '1')
return 1

-- Purpose: ends a latch, whatever its count is, and lets its waiters go.
--
-- KEYS[1]  the count, a number
-- ARGV[1]  the channel of the latch's messages
-- ARGV[2]  the command that publishes there: publish, or spublish on a cluster that knows it
--
-- Returns
--   1  there was a count
--   0  there was none; nothing was done
--
-- Redisson publishes 1 here, which lets its own waiters sleep on.
-- Example: count 3 -> no key, message "0", 1; once more -> 0.

local deleted = redis.call('del', KEYS[1])
if deleted == 1 then
    redis.pcall(ARGV[2], ARGV[1], '0')
end
return deleted

-- Purpose: creates a semaphore with this many permits, if it does not exist.
--
-- KEYS[1]  the free permits, a number
-- KEYS[2]  the mark of the request, a string of lockdog's own
-- KEYS[3]  the ledger: request -> how many permits it has, or when it ended; '' if the ledger is complete
-- ARGV[1]  how many permits it has
-- ARGV[2]  after how many milliseconds it expires; 0: never
-- ARGV[3]  how long the mark is kept, in milliseconds: longer than the request may be repeated
-- ARGV[4]  the channel of the semaphore's messages
-- ARGV[5]  the command that publishes there: publish, or spublish on a cluster that supports it
--
-- Returns
--   1  created, now or by an earlier run of the same request
--   0  the semaphore existed; nothing was done
--
-- The permits of an earlier number end. The ended requests stay in the ledger, because one of their commands may
-- still arrive. ZADD comes first, because a server out of memory refuses only the first write of a script.
-- Example: nothing, 3 -> 3 free, message "3", 1; once more -> 1; another request -> 0.

local was = redis.call('get', KEYS[2])
if was then
    return was == '0' and 0 or 1
end
if redis.call('exists', KEYS[1]) == 1 then
    -- A late repetition must not set the number after the present one is gone.
    redis.call('set', KEYS[2], '0', 'px', ARGV[3])
    return 0
end
redis.call('zadd', KEYS[3], 0, '')
redis.call('zremrangebyscore', KEYS[3], 1, 2 ^ 31 - 1)
redis.call('set', KEYS[2], '1', 'px', ARGV[3])
redis.call('set', KEYS[1], ARGV[1])
if ARGV[2] ~= '0' then
    redis.call('pexpire', KEYS[1], ARGV[2])
    redis.call('pexpire', KEYS[3], string.format('%.0f', ARGV[2] + 3600000))
else
    redis.pcall('persist', KEYS[3])
end
if tonumber(ARGV[1]) > 0 then
    redis.pcall(ARGV[5], ARGV[4], ARGV[1])
end
return 1

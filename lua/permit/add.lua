-- Purpose: adds permits to a semaphore of either kind, once for each request.
--
-- KEYS[1]  the free permits, a number
-- KEYS[2]  the mark of the request, a string of lockdog's own
-- KEYS[3]  of a semaphore without leases its ledger: see lua/semaphore/acquire.lua
-- ARGV[1]  how many permits are added; below zero: taken away
-- ARGV[2]  how long the mark is kept, in milliseconds: longer than the request may be repeated
-- ARGV[3]  the channel of the semaphore's messages
-- ARGV[4]  the command that publishes there: publish, or spublish on a cluster that knows it
-- ARGV[5]  1: only if the semaphore exists. Else 0
--
-- Returns
--   1  added, now or by an earlier run of the same request
--   0  it does not exist; nothing was done
--   error WRONGTYPE: the free permits are no number below 2^53; nothing was done
--
-- Else the semaphore is created if it does not exist, and permits of an earlier number end. INCRBY keeps its
-- TTL.
-- Example: 1 free, 2 -> 3 free, message "3", 1; once more -> 1.

local value = redis.call('get', KEYS[1]) or nil
local text = value or '0'
local free = (text == '0' or string.match(text, '^-?[1-9]%d*$')) and tonumber(text)
if not free or math.abs(free) >= 2 ^ 53 then
    return redis.error_reply('WRONGTYPE the free permits are no number below 2^53')
end
local was = redis.call('get', KEYS[2])
if was then
    return was == '0' and 0 or 1
end
-- It removes nothing: a server out of memory lets a script go on that has begun to write, and permits that are
-- given back must not be refused.
redis.call('del', KEYS[2])
if ARGV[5] == '1' and not value then
    -- A repetition that comes late must not add to a semaphore that exists by then.
    redis.call('set', KEYS[2], '0', 'px', ARGV[2])
    return 0
end
if KEYS[3] and not value then
    -- As lua/semaphore/try_set.lua.
    redis.call('zadd', KEYS[3], 0, '')
    redis.call('zremrangebyscore', KEYS[3], 1, 2 ^ 31 - 1)
    redis.pcall('persist', KEYS[3])
end
redis.call('set', KEYS[2], '1', 'px', ARGV[2])
free = redis.call('incrby', KEYS[1], ARGV[1])
if tonumber(ARGV[1]) > 0 and free > 0 then
    redis.pcall(ARGV[4], ARGV[3], string.format('%.0f', free))
end
return 1

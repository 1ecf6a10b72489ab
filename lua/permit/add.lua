-- Purpose: adds permits to a semaphore of either kind, once for each request.
--
-- KEYS[1]  the free permits, a number
-- KEYS[2]  the mark of the request, a string of lockdog's own
-- KEYS[3]  of a semaphore without leases: its ledger, see lua/semaphore/acquire.lua
-- ARGV[1]  how many permits are added; a negative number removes permits
-- ARGV[2]  how long the mark is kept, in milliseconds: longer than the request may be repeated
-- ARGV[3]  the channel of the semaphore's messages
-- ARGV[4]  the command that publishes there: publish, or spublish on a cluster that supports it
-- ARGV[5]  1: only if the semaphore exists; 0: always
--
-- Returns
--   1  added, now or by an earlier run of the same request
--   0  the semaphore does not exist; nothing was done
--   error WRONGTYPE: the free permits are not a number below 2^53; nothing was done
--
-- If ARGV[5] is 0 and the semaphore does not exist, the script creates it, and the permits of an earlier number
-- end. INCRBY keeps the TTL.
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
-- There is nothing to delete. DEL comes first, because a server out of memory lets a script continue that has
-- already written, and it must not refuse a release of permits.
redis.call('del', KEYS[2])
if ARGV[5] == '1' and not value then
    -- A late repetition must not add permits to a semaphore that was created meanwhile.
    redis.call('set', KEYS[2], '0', 'px', ARGV[2])
    return 0
end
if KEYS[3] and not value then
    -- As in lua/semaphore/try_set.lua.
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

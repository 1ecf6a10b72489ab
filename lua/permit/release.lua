-- Purpose: releases one permit; also after an acquire or a release whose outcome is unknown.
--
-- KEYS[1]  the free permits, a number
-- KEYS[2]  the sorted set of the permits in use: id -> the server's time at which it expires, in ms
-- ARGV[1]  the id of the permit
-- ARGV[2]  0: releases the permit; another number: only checks whether it is in use
-- ARGV[3]  the channel of the semaphore's messages
-- ARGV[4]  the command that publishes there: publish, or spublish on a cluster that supports it
--
-- Returns
--   1     the permit was in use and is released (or it is in use, if the script only checks it)
--   nil   it is not in use: it was lost, or a repeated release already released it
--   error WRONGTYPE: the free permits are not a number below 2^53; nothing was done
--
-- It also releases an expired permit that no acquire has returned to the free ones yet. ZREM comes first, because a
-- server out of memory lets a script continue that has already written.
-- Example: 1 free, { a, b }, id a -> 2 free, { b }, message "2", 1; once more -> nil.

local permits, in_use, id = KEYS[1], KEYS[2], ARGV[1]

if ARGV[2] ~= '0' then
    return redis.call('zscore', in_use, id) and 1 or nil
end
local value = redis.call('get', permits) or '0'
local free = (value == '0' or string.match(value, '^-?[1-9]%d*$')) and tonumber(value)
if not free or math.abs(free) >= 2 ^ 53 then
    return redis.error_reply('WRONGTYPE the free permits are no number below 2^53')
end
local ends = redis.call('zscore', in_use, id)
if redis.call('zrem', in_use, id) == 0 then
    return nil
end
free = redis.pcall('incrby', permits, 1)
if type(free) == 'table' then
    -- The user has no permission for INCRBY: keep the permit in use, so that it is not lost.
    redis.call('zadd', in_use, ends, id)
    return free
end
if free > 0 then
    redis.pcall(ARGV[4], ARGV[3], string.format('%.0f', free))
end
return 1

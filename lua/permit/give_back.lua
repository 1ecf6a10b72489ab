-- Purpose: releases permits by their ids: all of them, or none.
--
-- KEYS[1]  the free permits, a number
-- KEYS[2]  the sorted set of the permits in use: id -> the server's time at which it expires, in ms
-- ARGV[1]  the channel of the semaphore's messages
-- ARGV[2]  the command that publishes there: publish, or spublish on a cluster that supports it
-- ARGV[3]  and all that follow: the ids of the permits
--
-- Returns
--   1   all were in use and are released
--   0   none of them is in use; nothing was done
--   -1  some of them are in use and others are not; nothing was done
--   error WRONGTYPE: the free permits are not a number below 2^53; nothing was done
--
-- A permit whose lease has ended is not in use. After 0, an earlier run of the same command may have released the
-- permits; after -1, it did not. ZREM comes first, because a server out of memory lets a script continue that has
-- already written.
-- Example: 1 free, { a, b }, ids a and b -> 3 free, message "3", 1; once more -> 0; ids b and c, b in use
-- -> -1.

local value = redis.call('get', KEYS[1]) or '0'
local free = (value == '0' or string.match(value, '^-?[1-9]%d*$')) and tonumber(value)
if not free or math.abs(free) >= 2 ^ 53 then
    return redis.error_reply('WRONGTYPE the free permits are no number below 2^53')
end
local clock = redis.call('time')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local in_use, scores = 0, {}
for i = 3, #ARGV do
    local ends = tonumber(redis.call('zscore', KEYS[2], ARGV[i]) or nil)
    if ends and ends > now then
        in_use = in_use + 1
        scores[#scores + 1] = string.format('%.0f', ends)
        scores[#scores + 1] = ARGV[i]
    end
end
if in_use < #ARGV - 2 then
    return in_use == 0 and 0 or -1
end
local given = 0
for i = 3, #ARGV do
    given = given + redis.call('zrem', KEYS[2], ARGV[i])
end
free = redis.pcall('incrby', KEYS[1], given)
if type(free) == 'table' then
    -- The user has no permission for INCRBY: keep the permits in use, so that they are not lost.
    redis.call('zadd', KEYS[2], unpack(scores))
    return free
end
if free > 0 then
    redis.pcall(ARGV[2], ARGV[1], string.format('%.0f', free))
end
return 1

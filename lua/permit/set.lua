-- Purpose: sets how many permits a semaphore has, free and in use together.
--
-- KEYS[1]  the free permits, a number
-- KEYS[2]  the sorted set of the permits in use
-- ARGV[1]  how many permits the semaphore gets
-- ARGV[2]  1: only if the semaphore does not exist
-- ARGV[3]  the channel of the semaphore's messages
-- ARGV[4]  the command that publishes there: publish, or spublish on a cluster that knows it
--
-- Returns
--   1  it has that many
--   0  it exists already; nothing was done
--   error WRONGTYPE: the free permits are no number below 2^53; nothing was done
--
-- More may be in use than it has then: the free permits are below zero until enough are given back.
-- INCRBY keeps the TTL. Run twice it does what it does once.
-- Example: 1 free, { a, b }, 5 -> 3 free, { a, b }, message "3", 1.

local value = redis.call('get', KEYS[1])
if ARGV[2] == '1' and value then
    return 0
end
local free = string.match(value or '0', '^-?%d+$') and tonumber(value or '0')
if not free or math.abs(free) >= 2 ^ 53 then
    return redis.error_reply('WRONGTYPE the free permits are no number below 2^53')
end
-- Redisson's trySetPermits, too, ignores what is in use.
local used = ARGV[2] == '1' and 0 or redis.call('zcard', KEYS[2])
local by = ARGV[1] - free - used
if by == 0 and value then
    return 1
end
free = redis.call('incrby', KEYS[1], string.format('%.0f', by))
if by > 0 and free > 0 then
    redis.pcall(ARGV[4], ARGV[3], string.format('%.0f', free))
end
return 1

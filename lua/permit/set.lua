-- Purpose: sets how many permits a semaphore has, free and in use together, once for each request.
--
-- KEYS[1]  the free permits, a number
-- KEYS[2]  the sorted set of the permits in use
-- KEYS[3]  the mark of the request, a string of lockdog's own
-- ARGV[1]  how many permits the semaphore gets
-- ARGV[2]  1: only if the semaphore does not exist
-- ARGV[3]  how long the mark is kept, in milliseconds: longer than the request may be repeated
-- ARGV[4]  the channel of the semaphore's messages
-- ARGV[5]  the command that publishes there: publish, or spublish on a cluster that supports it
--
-- Returns
--   1  the semaphore has this number, set now or by an earlier run of the same request
--   0  the semaphore existed, now or at that earlier run; nothing was done
--   error WRONGTYPE: the free permits are not a number below 2^53; nothing was done
--
-- If more permits are in use than the new number, the free permits are negative until enough are released. INCRBY
-- keeps the TTL. Idempotent, also after later changes of the number.
-- Example: 1 free, { a, b }, 5 -> 3 free, { a, b }, message "3", 1.

local was = redis.call('get', KEYS[3])
if was then
    return was == '0' and 0 or 1
end
local value = redis.call('get', KEYS[1]) or nil
if ARGV[2] == '1' and value then
    redis.call('set', KEYS[3], '0', 'px', ARGV[3])
    return 0
end
local text = value or '0'
local free = (text == '0' or string.match(text, '^-?[1-9]%d*$')) and tonumber(text)
if not free or math.abs(free) >= 2 ^ 53 then
    return redis.error_reply('WRONGTYPE the free permits are no number below 2^53')
end
-- As Redisson's trySetPermits, which ignores the permits in use.
local used = ARGV[2] == '1' and 0 or redis.call('zcard', KEYS[2])
redis.call('set', KEYS[3], '1', 'px', ARGV[3])
local by = ARGV[1] - free - used
if by == 0 and value then
    return 1
end
free = redis.call('incrby', KEYS[1], string.format('%.0f', by))
if by > 0 and free > 0 then
    redis.pcall(ARGV[5], ARGV[4], string.format('%.0f', free))
end
return 1

-- Purpose: reads how many permits of a semaphore are free and in use, and how long one of them stays in use. It
-- changes nothing.
--
-- KEYS[1]  the free permits, a number
-- KEYS[2]  the sorted set of the permits in use: id -> the server's time at which it expires, in ms
-- ARGV[1]  the id of a permit; empty: no permit
--
-- Returns { free, in use, left }. A permit whose lease has ended counts as free, although no acquire has returned
-- it to the free ones yet.
--   left  for how many milliseconds the permit is in use; -1: it never expires; -2: it is not in use, or its lease
--         has ended
--   error WRONGTYPE: the free permits are not a number below 2^53
--
-- Example: 1 free, { a = now + 10000, b }, the lease of b has ended, id a -> { 2, 1, 10000 }.

local value = redis.call('get', KEYS[1]) or '0'
local free = (value == '0' or string.match(value, '^-?[1-9]%d*$')) and tonumber(value)
if not free or math.abs(free) >= 2 ^ 53 then
    return redis.error_reply('WRONGTYPE the free permits are no number below 2^53')
end
local clock = redis.call('time')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local expired = redis.call('zcount', KEYS[2], '-inf', string.format('%.0f', now))
local ends = tonumber(redis.call('zscore', KEYS[2], ARGV[1]) or nil)
local left = -2
-- Redisson's value for a permit that never expires.
if ends and ends >= 922337203685477 then
    left = -1
elseif ends and ends > now then
    left = ends - now
end
return { free + expired, redis.call('zcard', KEYS[2]) - expired, left }

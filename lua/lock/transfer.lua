-- Purpose: hands the lock from one hold to the next of the same client, without setting it free.
--
-- KEYS[1]  the lock's hash
-- ARGV[1]  the field of the hold that ends, whatever its count is
-- ARGV[2]  the field of the hold that begins, with a count of 1
-- ARGV[3]  its lease in milliseconds
-- ARGV[4]  the channel of the lock's messages
--
-- Returns
--   n >= 0  handed on; n connections listen on the channel
--   -1      handed on; how many listen cannot be known
--   -2      the first hold ended and the second could not begin: the lock is free, waiters are told
--   nil     the first hold is not there, and neither is the second: it was lost
--
-- Run twice it does what it does once: without the first field it changes nothing. HDEL comes first,
-- because a server out of memory lets a script go on that has written.
-- Example: { a = 2 }, from a to b, lease 30000 -> { b = 1 }, TTL 30000, 0; once more -> 0.

local key, from, to, channel = KEYS[1], ARGV[1], ARGV[2], ARGV[4]

if redis.call('hdel', key, from) == 1 then
    local begun = redis.pcall('hincrby', key, to, 1)
    local timed = type(begun) == 'number' and redis.pcall('pexpire', key, ARGV[3])
    if timed ~= 1 then
        -- A lock without a TTL would outlive its holder.
        redis.pcall('hdel', key, to)
        redis.pcall('publish', channel, '0')
        return -2
    end
elseif redis.call('hexists', key, to) == 0 then
    return nil
end

local listening = redis.pcall('pubsub', 'numsub', channel)
return listening[2] or -1

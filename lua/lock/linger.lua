-- Purpose: shortens the TTL of a lock to the rest of a least time, after its hold has ended.
--
-- KEYS[1]  the lock's hash
-- KEYS[2]  of a fair lock: the queue, a list of fields in the order of arrival; Redisson's key
-- KEYS[3]  of a fair lock: the places, a sorted set, field -> when Redisson may drop it at the head; Redisson's key
-- KEYS[4]  of a fair lock: the presence, a sorted set, field -> the time until which the waiter counts as present
-- ARGV[1]  the hold's field
-- ARGV[2]  the rest of the time, in milliseconds; at least 1
-- ARGV[3]  the channel of the lock's messages, or the prefix of those of a fair lock's waiters; empty if its
--          releases are not published
-- ARGV[4]  the command that publishes there: publish, or spublish on a cluster that supports it
-- ARGV[5]  of a fair lock: fair_wait, what each place adds to the score, as in Redisson, in milliseconds
--
-- Returns
--   1    the field was there, and the TTL of the key is the rest or shorter
--   nil  the field is not there; nothing was done
--
-- The client sends the script only for a hold that has ended, so the script may shorten the TTL. Redisson's waiters
-- wait for the TTL that they read, so two messages make them query it again: '1' wakes each sleeping thread of a
-- Redisson client, and '0' wakes a thread that is about to sleep. '0' alone would wake one thread, which could give
-- up before the rest is over. A waiter of Redisson for a fair lock computes its wait from its place, which may be of
-- the time of an earlier holder: then it would wait for a message that never comes. So the script gives the first
-- waiter a place that matches the rest.
-- Example: { field = 1 }, TTL 30 s, rest 5 s -> { field = 1 }, TTL 5 s, messages "1" and "0", 1.

local key, rest, channel = KEYS[1], tonumber(ARGV[2]), ARGV[3]

if redis.call('hexists', key, ARGV[1]) == 0 then
    return nil
end
local is_sooner = redis.call('pttl', key) > rest
if is_sooner then
    -- A repeated command finds a shorter TTL, and must not begin the rest again.
    redis.call('pexpire', key, rest)
end
if channel == '' then
    return 1
end

local function publish()
    if KEYS[2] then
        local head = redis.call('lindex', KEYS[2], 0)
        if not head then
            return
        end
        if not redis.call('zscore', KEYS[4], head) then
            local clock = redis.call('time')
            local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
            -- A waiter whose score has passed may be dead, and the next query drops it.
            if tonumber(redis.call('zscore', KEYS[3], head) or 0) > now then
                -- A server out of memory may refuse the new place. The script publishes the message nevertheless.
                redis.pcall('zadd', KEYS[3], now + rest + ARGV[5], head)
            end
            is_sooner = true
        end
        channel = channel .. ':' .. head
    end
    if is_sooner then
        -- Each waiter of a fair lock has a channel of its own.
        if not KEYS[2] then
            redis.call(ARGV[4], channel, '1')
        end
        redis.call(ARGV[4], channel, '0')
    end
end

-- The key has its TTL, so an error here must not be returned as a failed unlock.
pcall(publish)
return 1

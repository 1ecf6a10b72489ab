-- Purpose: leaves a lock to the rest of a time, after its hold has ended.
--
-- KEYS[1]  the lock's hash
-- KEYS[2]  of a fair lock: the queue, a list of fields in the order of arrival; Redisson's key
-- KEYS[3]  of a fair lock: the places, a sorted set, field -> when Redisson may drop it at the head; Redisson's key
-- KEYS[4]  of a fair lock: the presence, a sorted set, field -> until when its client has shown that it waits
-- ARGV[1]  the hold's field
-- ARGV[2]  the rest of the time, in milliseconds; at least 1
-- ARGV[3]  the channel of the lock's messages, or the prefix of those of a fair lock's waiters; empty if its
--          releases are not published
-- ARGV[4]  the command that publishes there: publish, or spublish on a cluster that knows it
-- ARGV[5]  what a place is worth in Redisson's arithmetic, in milliseconds
--
-- Returns
--   1    the field was there, and the key ends after the rest at the latest
--   nil  the field is not there; nothing was done
--
-- It is sent only for a hold that has ended, so it may shorten the TTL. Redisson's waiters wait for the TTL that
-- they saw, so two messages make them query it again: '1' wakes each thread of a Redisson client that sleeps,
-- and '0' one that is about to sleep. By '0' alone one would wake, and could give up before the rest is over.
-- A waiter of Redisson for a fair lock takes the time from
-- its place, which may also be of an earlier holder: then it would wait for a message that never comes. So the
-- first one gets a place that says the rest.
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

local function tell()
    if KEYS[2] then
        local head = redis.call('lindex', KEYS[2], 0)
        if not head then
            return
        end
        if not redis.call('zscore', KEYS[4], head) then
            local clock = redis.call('time')
            local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
            -- One whose score has passed may be dead, and is dropped by the next look.
            if tonumber(redis.call('zscore', KEYS[3], head) or 0) > now then
                -- A server without memory refuses it, and the message goes out all the same.
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

-- The key has its TTL: nothing of this may look like an unlock that failed.
pcall(tell)
return 1

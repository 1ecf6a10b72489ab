-- Purpose: frees a fair lock from the given holder of any client, and never from a later one.
--
-- KEYS[1]  the lock's hash
-- KEYS[2]  the queue: a list of fields in the order of arrival; Redisson's key
-- KEYS[3]  the places: a sorted set, field -> when Redisson may drop it at the head; Redisson's key
-- KEYS[4]  the presence: a sorted set, field -> the time until which the waiter counts as present
-- ARGV[1]  the field of the holder, as the client read it before
-- ARGV[2]  the prefix of the waiters' channels: a waiter's channel is prefix:field
-- ARGV[3]  the command that publishes there: publish, or spublish on a cluster that supports it
--
-- Returns
--   1  that holder had the lock; the hash is deleted and the first present waiter is notified
--   0  it had not; nothing was done
--
-- Example: { "uuid:7" = 2 }, queue { b }, field "uuid:7" -> no hash, message "0" on prefix:b, 1.

local key, queue, places, presence = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

if redis.call('hexists', key, ARGV[1]) == 0 then
    return 0
end
redis.call('del', key)

local function notify_first()
    local clock = redis.call('time')
    local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
    while true do
        local head = redis.call('lindex', queue, 0)
        if not head then
            break
        end
        local seen = tonumber(redis.call('zscore', presence, head) or nil)
        local place = tonumber(redis.call('zscore', places, head) or nil)
        if (seen or place or 0) > now then
            redis.pcall(ARGV[3], ARGV[2] .. ':' .. head, '0')
            break
        end
        -- A waiter of lockdog whose presence is over, or one of Redisson whose score has passed.
        redis.call('lpop', queue)
        redis.call('zrem', places, head)
        redis.call('zrem', presence, head)
    end
end

-- The lock is free already, so an error on the keys of the queue (another type, no permission) must not be
-- returned as a failed force unlock.
pcall(notify_first)
return 1

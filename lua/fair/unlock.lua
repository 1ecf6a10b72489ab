-- Purpose: lowers the count of one hold of a fair lock to a target; at zero it frees the lock and notifies the
-- first present waiter. It also settles an acquire whose outcome is unknown: then the field leaves the queue.
--
-- KEYS[1]  the lock's hash
-- KEYS[2]  the queue: a list of fields in the order of arrival; Redisson's key
-- KEYS[3]  the places: a sorted set, field -> when Redisson may drop it at the head; Redisson's key
-- KEYS[4]  the presence: a sorted set, field -> the time until which the waiter counts as present
-- ARGV[1]  the hold's field
-- ARGV[2]  the target count; 0 deletes the field, whatever its count
-- ARGV[3]  the prefix of the waiters' channels: a waiter's channel is prefix:field
-- ARGV[4]  the command that publishes there: publish, or spublish on a cluster that supports it
-- ARGV[5]  fair_wait: what each place adds to the score, as in Redisson, in milliseconds
-- ARGV[6]  '1': the field may have a place in the queue, which ends; '0': it has none
--
-- Returns
--   1    the lock was released, or the field left the queue
--   0    the hold is still there, at the target
--   nil  the field has no hold and no place: the hold was lost, or a repeated unlock already ended it
--
-- Idempotent. The final unlock begins with HDEL, and uses no earlier command that a server out of memory
-- refuses.
-- Example: { a = 1 }, queue { b }, target 0 -> no hash, message "0" on prefix:b, 1.

local key, queue, places, presence = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local field, target, fair_wait = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[5])

if target > 0 then
    local count = tonumber(redis.call('hget', key, field) or nil)
    if not count then
        return nil
    end
    if count ~= target then
        redis.call('hincrby', key, field, target - count)
    end
    return 0
end

local done = redis.call('hdel', key, field) == 1

local function leave_queue()
    if ARGV[6] == '1' and redis.call('zrem', presence, field) == 1 then
        done = true
    end
    if redis.call('exists', queue) == 0 then
        if ARGV[6] == '1' then
            redis.call('zrem', places, field)
        end
        return done and 1 or nil
    end

    local clock = redis.call('time')
    local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
    local left = redis.call('pttl', key)

    if ARGV[6] == '1' then
        -- As in Redisson, the end of a place lowers the scores of Redisson's waiters behind it.
        local others = {}
        if redis.call('zcard', places) > redis.call('zcard', presence) + 1 then
            -- One command reads all: with thousands of waiters, a call for each one would block the server.
            local is_present, from = {}, 0
            for _, other in ipairs(redis.call('zrange', presence, 0, -1)) do
                is_present[other] = true
            end
            local all = redis.call('lrange', queue, 0, -1)
            for i, other in ipairs(all) do
                if other == field then
                    from = i
                elseif from > 0 and not is_present[other] then
                    others[#others + 1] = other
                end
            end
        end
        local was_queued = redis.call('lrem', queue, 0, field) > 0
        was_queued = redis.call('zrem', places, field) == 1 or was_queued
        done = done or was_queued
        for _, other in ipairs(others) do
            local place = tonumber(redis.call('zscore', places, other) or nil)
            if place then
                -- A score that has not passed does not fall below the present time. If the lock is free,
                -- the waiter has a second to take it.
                local least = math.min(place, now + math.max(1000, left))
                redis.call('zadd', places, math.max(place - fair_wait, least), other)
            end
        end
    end
    if not done then
        return nil
    end

    if left == -2 then
        while true do
            local head = redis.call('lindex', queue, 0)
            if not head then
                break
            end
            local seen = tonumber(redis.call('zscore', presence, head) or nil)
            local place = tonumber(redis.call('zscore', places, head) or nil)
            if (seen or place or 0) > now then
                redis.pcall(ARGV[4], ARGV[3] .. ':' .. head, '0')
                break
            end
            -- A waiter of lockdog whose presence is over, or one of Redisson whose score has passed.
            redis.call('lpop', queue)
            redis.call('zrem', places, head)
            redis.call('zrem', presence, head)
        end
    end
    return 1
end

-- The hold may have ended already, so an error on the keys of the queue (another type, no permission) must not
-- be returned as a failed unlock. The next acquire returns it.
local succeeded, answer = pcall(leave_queue)
if succeeded then
    return answer
end
return done and 1 or error(answer)

-- Purpose: ends one hold of a fair lock and begins the next one of the same client, if that one is the first
-- present waiter.
--
-- KEYS[1]  the lock's hash
-- KEYS[2]  the queue: a list of fields in the order of arrival; Redisson's key
-- KEYS[3]  the places: a sorted set, field -> when Redisson may drop it at the head; Redisson's key
-- KEYS[4]  the presence: a sorted set, field -> the time until which the waiter counts as present
-- ARGV[1]  the field of the hold that ends, with any count
-- ARGV[2]  the field of the hold that begins, with a count of 1
-- ARGV[3]  its lease in milliseconds
-- ARGV[4]  the prefix of the waiters' channels: a waiter's channel is prefix:field
-- ARGV[5]  the command that publishes there: publish, or spublish on a cluster that supports it
-- ARGV[6]  fair_wait: what each place adds to the score, as in Redisson, in milliseconds
--
-- Returns
--   -1   handed over, and the TTL is the lease or longer; the script does not count the listeners
--   -2   the first hold ended; the first present waiter was notified, if there is one
--   -3   as -1, but the first hold was not there: an earlier run ended it, or it was lost
--   nil  neither hold is there: the first one was lost
--
-- Idempotent: without the first field it changes no count, and a TTL only grows. HDEL comes first, because a
-- server out of memory lets a script continue that has already written.
-- Example: { a = 2 }, queue { b, c }, from a to b, lease 30000 -> { b = 1 }, TTL 30000, queue { c }, -1.

local key, queue, places, presence = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local from, to, fair_wait = ARGV[1], ARGV[2], tonumber(ARGV[6])

if redis.call('hdel', key, from) == 0 then
    if redis.call('hexists', key, to) == 0 then
        return nil
    end
    -- This is a repetition, or a query granted the lock to the second hold. The new holder counts its lease from
    -- this command.
    if redis.call('pttl', key) < tonumber(ARGV[3]) then
        redis.call('pexpire', key, ARGV[3])
    end
    return -3
end

local function hand_over()
    local clock = redis.call('time')
    local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
    local head
    while true do
        head = redis.call('lindex', queue, 0)
        if not head then
            break
        end
        local seen = tonumber(redis.call('zscore', presence, head) or nil)
        local place = tonumber(redis.call('zscore', places, head) or nil)
        if (seen or place or 0) > now then
            break
        end
        -- A waiter of lockdog whose presence is over, or one of Redisson whose score has passed.
        redis.call('lpop', queue)
        redis.call('zrem', places, head)
        redis.call('zrem', presence, head)
    end

    if head == to and redis.call('exists', key) == 0 then
        local place = tonumber(redis.call('zscore', places, to) or nil)
        local granted = redis.pcall('hincrby', key, to, 1)
        local timed = type(granted) == 'number' and redis.pcall('pexpire', key, ARGV[3])
        if timed == 1 then
            redis.call('lpop', queue)
            redis.call('zrem', places, to)
            redis.call('zrem', presence, to)
            -- As in Redisson, the end of a place lowers the scores of Redisson's waiters.
            local by = math.min(fair_wait, math.max(0, (place or 0) - now - tonumber(ARGV[3])))
            if by > 0 and redis.call('zcard', places) > redis.call('zcard', presence) then
                -- One command reads all: with thousands of waiters, a call for each one would block the server.
                local is_present = {}
                for _, other in ipairs(redis.call('zrange', presence, 0, -1)) do
                    is_present[other] = true
                end
                local all = redis.call('zrange', places, 0, -1, 'withscores')
                for i = 1, #all, 2 do
                    local score = tonumber(all[i + 1])
                    if not is_present[all[i]] then
                        -- Not below the end of the lease: until then the waiter cannot take the lock.
                        local least = math.min(score, now + tonumber(ARGV[3]))
                        redis.pcall('zadd', places, math.max(score - by, least), all[i])
                    end
                end
            end
            return -1
        end
        -- A lock without a TTL would outlive its holder.
        redis.pcall('hdel', key, to)
    end
    if head then
        redis.pcall(ARGV[5], ARGV[4] .. ':' .. head, '0')
    end
    return -2
end

-- The first hold has ended, so an error on the keys of the queue (another type, no permission) must not be
-- returned as a failed unlock. The waiters' timers make them query the lock.
local succeeded, answer = pcall(hand_over)
if succeeded then
    return answer
end
-- The second hold may have been granted before the error. The answer says that it was not, so undo it.
redis.pcall('hdel', key, to)
return -2

-- Purpose: ends one hold of a fair lock and begins the next of the same client, if that one is the first
-- waiter that is there.
--
-- KEYS[1]  the lock's hash
-- KEYS[2]  the queue: a list of fields in the order of arrival; Redisson's key
-- KEYS[3]  the places: a sorted set, field -> when Redisson may drop it at the head; Redisson's key
-- KEYS[4]  the presence: a sorted set, field -> until when its client has shown that it waits
-- ARGV[1]  the field of the hold that ends, whatever its count is
-- ARGV[2]  the field of the hold that begins, with a count of 1
-- ARGV[3]  its lease in milliseconds
-- ARGV[4]  the prefix of the waiters' channels: a waiter's channel is prefix:field
-- ARGV[5]  the command that publishes there: publish, or spublish on a cluster that knows it
-- ARGV[6]  what a place is worth in Redisson's arithmetic, in milliseconds
--
-- Returns
--   -1   handed on, and the TTL is the lease or longer; how many listen is not asked
--   -2   the first hold ended, and it is the turn of another waiter, which was notified, or of none
--   nil  the first hold is not there, and neither is the second: it was lost
--
-- Run twice it does what it does once: without the first field it changes no count, and a TTL only grows.
-- HDEL comes first, because a server out of memory lets a script go on that has written.
-- Example: { a = 2 }, queue { b, c }, from a to b, lease 30000 -> { b = 1 }, TTL 30000, queue { c }, -1.

local key, queue, places, presence = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local from, to, worth = ARGV[1], ARGV[2], tonumber(ARGV[6])

if redis.call('hdel', key, from) == 0 then
    if redis.call('hexists', key, to) == 0 then
        return nil
    end
    -- This is a repetition. Or a look whose answer was lost granted it before: the receiver counts its lease
    -- from this command.
    if redis.call('pttl', key) < tonumber(ARGV[3]) then
        redis.call('pexpire', key, ARGV[3])
    end
    return -1
end

local function hand_on()
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
        -- Ours that was silent for too long, or Redisson's whose score has passed.
        redis.call('lpop', queue)
        redis.call('zrem', places, head)
        redis.call('zrem', presence, head)
    end

    if head == to and redis.call('exists', key) == 0 then
        local place = tonumber(redis.call('zscore', places, to) or nil)
        local begun = redis.pcall('hincrby', key, to, 1)
        local timed = type(begun) == 'number' and redis.pcall('pexpire', key, ARGV[3])
        if timed == 1 then
            redis.call('lpop', queue)
            redis.call('zrem', places, to)
            redis.call('zrem', presence, to)
            -- Redisson's waiters lose what this one was worth.
            local by = math.min(worth, math.max(0, (place or 0) - now - tonumber(ARGV[3])))
            if by > 0 and redis.call('zcard', places) > redis.call('zcard', presence) then
                -- Read at once: a call for each waiter would hold the server if there are thousands.
                local is_present = {}
                for _, other in ipairs(redis.call('zrange', presence, 0, -1)) do
                    is_present[other] = true
                end
                local all = redis.call('zrange', places, 0, -1, 'withscores')
                for i = 1, #all, 2 do
                    local score = tonumber(all[i + 1])
                    if not is_present[all[i]] then
                        -- Never to before the end of the lease, in which the lock cannot be theirs.
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

-- The first hold has ended: what is wrong with the keys of the queue (another type, no permission) must not
-- look like an unlock that failed. The waiters look for themselves.
local is_well, answer = pcall(hand_on)
if is_well then
    return answer
end
-- It may have been granted before the failure. The receiver learns that it was not.
redis.pcall('hdel', key, to)
return -2

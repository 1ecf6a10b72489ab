-- Purpose: one query of a fair lock: raises the count of one hold to a target; takes the lock if it is free
-- and no present waiter is before the hold; or else takes or keeps a place in the queue.
--
-- KEYS[1]    the lock's hash
-- KEYS[2]    the queue: a list of fields in the order of arrival; Redisson's key
-- KEYS[3]    the places: a sorted set, field -> when Redisson may drop it at the head; Redisson's key
-- KEYS[4]    the presence: a sorted set, field -> the time until which the waiter counts as present
-- ARGV[1]    the hold's field, "<client uuid>:<task>.<hold number>"
-- ARGV[2]    the target count of the hold; 1 for a first acquire
-- ARGV[3]    the lease in milliseconds
-- ARGV[4]    fair_wait: what each place adds to the score, as in Redisson, in milliseconds
-- ARGV[5]    fair_absence: how long a waiter is present after a query, in milliseconds
-- ARGV[6]    'enter': the field may take a place; 'look': it has a place; 'try': it takes none
-- ARGV[7]    the prefix of the waiters' channels: a waiter's channel is prefix:field
-- ARGV[8]    the command that publishes there: publish, or spublish on a cluster that supports it
-- ARGV[9..]  the fields of further waiters of this client, in their order: the script keeps them present
--
-- Returns
--   nil                   granted: the count is the target or above, the TTL is the lease or longer
--   { n, arrival }        another hold has the lock, and its TTL is n milliseconds (-1: it has none)
--   { -2, arrival, head } the lock is free, and the waiter with the field head is first; it was notified.
--                         arrival: the server's clock in microseconds as text if the field took a place
--                         by this call, else ''
--   -3                    the target is above 1 and the field is gone: the hold was lost
--   -5                    'look': the field has no place any more; nothing was granted
--
-- Idempotent: the target is absolute, a TTL only grows, and a field that has a place takes no second one. A
-- late 'look' of a waiter that left finds no place, so it takes nothing.
-- Example: held by a with 700 ms left, queue empty, 'enter' of b -> queue { b }, { 700, "17..." }.

local key, queue, places, presence = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local field, target, lease = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local fair_wait, fair_absence, mode = tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6]
local A_DAY = 24 * 60 * 60 * 1000

local count = tonumber(redis.call('hget', key, field) or nil)
if count then
    local missing = target - count
    if missing > 0 then
        redis.call('hincrby', key, field, missing)
    end
    if redis.call('pttl', key) < lease then
        local timed = redis.pcall('pexpire', key, ARGV[3])
        if type(timed) == 'table' and timed.err then
            -- A refused command has no effect: undo the count.
            if missing > 0 then
                redis.call('hincrby', key, field, -missing)
            end
            return timed
        end
    end
    return nil
end
if target > 1 then
    return -3
end

-- Writes the hold. If the server refuses the TTL, the function undoes the grant and returns the error, because a
-- lock without a TTL would outlive its holder.
local function begin()
    redis.call('hincrby', key, field, 1)
    local timed = redis.pcall('pexpire', key, ARGV[3])
    if type(timed) == 'table' and timed.err then
        redis.call('hdel', key, field)
        return timed
    end
    return nil
end

if mode ~= 'look' and redis.call('exists', key, queue, places) == 0 then
    -- The lock is free, and the queue is empty.
    return begin()
end

local clock = redis.call('time')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local left = redis.call('pttl', key)
local is_free = left == -2
local least_score = now + math.max(0, left) + fair_wait

-- Lowers the scores of Redisson's waiters, as Redisson does when a place before them ends. A waiter of Redisson
-- has no presence, so its score is the only sign that it still waits. No score falls below now + least, because
-- a script would then drop the waiter before it could take the lock.
local function lower(by, least)
    if by <= 0 or redis.call('zcard', places) <= redis.call('zcard', presence) then
        return
    end
    -- One command reads all: with thousands of waiters, a call for each one would block the server for seconds.
    local is_present = {}
    for _, other in ipairs(redis.call('zrange', presence, 0, -1)) do
        is_present[other] = true
    end
    local all = redis.call('zrange', places, 0, -1, 'withscores')
    for i = 1, #all, 2 do
        local place = tonumber(all[i + 1])
        if not is_present[all[i]] then
            redis.call('zadd', places, math.max(place - by, math.min(place, now + least)), all[i])
        end
    end
end

local function wait_of(score, ahead)
    return math.min(fair_wait, math.max(0, (score or 0) - now - ahead))
end

local function drop(one)
    redis.call('lrem', queue, 1, one)
    redis.call('zrem', places, one)
    redis.call('zrem', presence, one)
end

-- Returns the first present waiter. It drops the waiters before it: lockdog's whose presence is over, and
-- Redisson's whose scores have passed.
local function first()
    local dropped, held = 0, math.max(0, left)
    while true do
        local head = redis.call('lindex', queue, 0)
        local seen = head and tonumber(redis.call('zscore', presence, head) or nil)
        local place = head and tonumber(redis.call('zscore', places, head) or nil)
        if not head or (seen or place or 0) > now then
            -- One pass for all dropped waiters, because there may be thousands.
            lower(dropped, held + fair_absence)
            return head
        end
        drop(head)
        if seen then
            dropped = dropped + wait_of(place, held)
        end
    end
end

if redis.call('exists', queue) == 0 and redis.call('exists', places) == 1 then
    -- Only the list was deleted. The present waiters get their places again. A score without an entry in the list
    -- would stay forever.
    redis.call('del', places)
end

-- The list and the places differ: another program changed or deleted one of them.
local keys_differ = redis.call('llen', queue) ~= redis.call('zcard', places)

-- The fields of the list. They are read only if the two keys differ.
local listed = {}
if keys_differ then
    for _, one in ipairs(redis.call('lrange', queue, 0, -1)) do
        listed[one] = true
    end
end

-- Keeps a waiter of this client present. Returns false if it has no place.
local function keep(one)
    local place = tonumber(redis.call('zscore', places, one) or nil)
    if not place and not redis.call('zscore', presence, one) then
        return false
    end
    local has_place = place
    if keys_differ then
        has_place = listed[one]
    end
    if not has_place then
        -- Redisson dropped the waiter. It drops only the first one, so all waiters before this one are gone.
        redis.call('lpush', queue, one)
        listed[one] = true
    end
    if not place or place < least_score then
        redis.call('zadd', places, least_score, one)
    end
    redis.call('zadd', presence, now + fair_absence, one)
    return true
end

-- Sets the TTLs. A field without a presence counts as a waiter of Redisson, which is present until its score. So
-- the presence outlasts the last place, even if no client sends a query meanwhile.
local function set_ttls()
    local last = redis.call('zrange', places, -1, -1, 'withscores')
    local ends = tonumber(last[2] or now)
    redis.call('pexpire', presence, math.max(0, ends - now) + fair_absence * 4)
    -- If all clients crash and no client uses the lock again, the queue expires. Redisson's waiters do not extend
    -- this TTL. They have long had their turns after a day.
    redis.call('pexpire', queue, A_DAY)
    redis.call('pexpire', places, A_DAY)
end

if #ARGV > 8 then
    -- The usual case needs two calls: all waiters have a place, and their scores are high enough.
    local others, marks = {}, {}
    for i = 9, #ARGV do
        others[#others + 1] = ARGV[i]
    end
    local scores = redis.call('zmscore', places, unpack(others))
    for i = #others, 1, -1 do
        local score = tonumber(scores[i] or nil)
        if score and score >= least_score and not keys_differ then
            marks[#marks + 1] = now + fair_absence
            marks[#marks + 1] = others[i]
        else
            keep(others[i])
        end
    end
    if #marks > 0 then
        redis.call('zadd', presence, unpack(marks))
        -- The key may be new, because it was deleted. A grant below ends the script before it sets the TTLs.
        set_ttls()
    end
end

local has_place = mode ~= 'try' and keep(field)
if mode == 'look' and not has_place then
    return -5
end
local head = first()

if is_free and (not head or head == field) then
    local place = tonumber(redis.call('zscore', places, field) or nil)
    local refused = begin()
    if refused then
        return refused
    end
    if place then
        drop(field)
        lower(wait_of(place, lease), lease)
    end
    return nil
end

local arrival = ''
if mode == 'enter' and not has_place then
    local last = redis.call('lindex', queue, -1)
    local before = last and tonumber(redis.call('zscore', places, last) or nil) or 0
    redis.call('rpush', queue, field)
    redis.call('zadd', places, math.max(before, now + math.max(0, left)) + fair_wait, field)
    redis.call('zadd', presence, now + fair_absence, field)
    arrival = string.format('%.0f', clock[1] * 1000000 + clock[2])
end
if mode ~= 'try' then
    set_ttls()
end
if is_free then
    -- The first waiter has not taken the free lock: its message was lost, or the waiters before it just left.
    redis.pcall(ARGV[8], ARGV[7] .. ':' .. head, '0')
    return { -2, arrival, head }
end
return { left, arrival }

-- Purpose: raises the count of one read or write hold to a target, taking the lock if its mode allows it.
--
-- KEYS[1]  the lock's hash
-- KEYS[2]  the announcement of a writer that waits
-- KEYS[3]  read only: the hold's own timeout key, Redisson's key of the first acquire
-- ARGV[1]  the hold's field, "<client uuid>:<task>.<hold number>", with ":write" at its end for a writer
-- ARGV[2]  the count that the hold shall have, 1 for a first acquire
-- ARGV[3]  the lease in milliseconds
-- ARGV[4]  the mode: "read" or "write"
-- ARGV[5]  the field of the same owner's hold in the other mode; empty if it has none
-- ARGV[6]  "1": a read stays out while a writer is announced; a write takes over from its own read hold
-- ARGV[7]  how long a writer that has to wait is announced, in milliseconds; 0: it is not
-- ARGV[8]  what stands before the fields in the names of the timeout keys
--
-- Returns
--   nil      granted: the field stands at the target or above, the TTL is the lease or longer
--   n >= -1  not granted; the TTL of the lock (-1: it has none), or of the announcement if the lock is free
--   -3       the target is above 1 and the field is gone, or the read hold to take over from is gone
--   -6       another owner waits to take over from its read hold: the two would wait for each other
--
-- Run twice it does what it does once: the target is absolute, and a TTL only grows.
-- Example: free, a read with target 1, lease 30000
--   -> { mode = read, field = 1 }, timeout key and hash with the TTL 30000, nil.

local key, announcement, own = KEYS[1], KEYS[2], KEYS[3]
local field, target, lease = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local reads, partner, prefers = ARGV[4] == 'read', ARGV[5], ARGV[6] == '1'
-- Only a writer that takes over stands behind a mark, because two of them would wait for each other.
local mark = prefers and 'up:' or ''

local function failed(answer)
    return type(answer) == 'table' and answer.err
end

local function lengthen(which)
    if redis.call('pttl', which) < lease then
        return redis.pcall('pexpire', which, lease)
    end
end

-- Whether a read hold of this field is still within a lease. What cannot be seen counts as alive.
local function is_alive(other, count)
    for n = math.min(tonumber(count) or 0, 1000), 1, -1 do
        local left = redis.pcall('pttl', ARGV[8] .. other .. ':rwlock_timeout:' .. n)
        if type(left) ~= 'number' or left > 0 or left == -1 then
            return true
        end
    end
    return false
end

local count = tonumber(redis.call('hget', key, field) or nil)
local missing = count and target - count or 1
if not count and target > 1 then
    return -3
end

local mode = redis.call('hget', key, 'mode')
local free = not mode and redis.call('exists', key) == 0
local expired = {}
if not count then
    local may
    if reads then
        local waits = prefers and redis.call('exists', announcement) == 1
        may = ((free or mode == 'read') and not waits)
            or (mode == 'write' and partner ~= '' and redis.call('hexists', key, partner) == 1)
    elseif prefers then
        if partner == '' or redis.call('hexists', key, partner) == 0 then
            return -3
        end
        -- The only reader whose lease is not over may become the writer. Others stay in the hash as long as
        -- anybody renews it.
        may = mode == 'read'
        local fields = may and redis.call('hgetall', key) or {}
        for i = 1, #fields, 2 do
            local other = fields[i]
            if other ~= partner and other ~= 'mode' then
                if is_alive(other, fields[i + 1]) then
                    may = false
                    break
                end
                expired[#expired + 1] = other
            end
        end
        local announced = not may and redis.pcall('get', announcement)
        if type(announced) == 'string' and announced:sub(1, 3) == 'up:' and announced ~= 'up:' .. field then
            return -6
        end
    else
        may = free
    end
    if not may then
        if not reads and mode == 'read' and ARGV[7] ~= '0' then
            local announced = redis.pcall('get', announcement)
            local is_first = type(announced) ~= 'string' or announced == mark .. field
            if is_first or (prefers and announced:sub(1, 3) ~= 'up:') then
                redis.call('set', announcement, mark .. field, 'px', ARGV[7])
            end
        end
        if free then
            return math.max(1, redis.call('pttl', announcement))
        end
        return redis.call('pttl', key)
    end
end

-- The first write may be refused by a server out of memory: then nothing was done.
local before = own and redis.call('pttl', own)
if own then
    local timed = redis.pcall('set', own, 1, 'px', string.format('%d', math.max(before, lease)))
    if failed(timed) then
        return timed
    end
end
local done = nil
if count then
    done = missing > 0 and redis.pcall('hincrby', key, field, missing)
elseif free or not reads then
    done = redis.pcall('hset', key, 'mode', ARGV[4], field, 1)
else
    done = redis.pcall('hset', key, field, 1)
end
local timed = not failed(done) and lengthen(key)
if failed(done) or failed(timed) then
    -- What is refused shall have done nothing. A lock without a TTL would outlive its holder.
    if not count and not failed(done) then
        redis.call('hdel', key, field)
        if free then
            redis.call('del', key)
        elseif mode == 'read' then
            redis.call('hset', key, 'mode', 'read')
        end
    elseif count and not failed(done) and missing > 0 then
        redis.call('hincrby', key, field, -missing)
    end
    if not count and own then
        redis.call('del', own)
    end
    return failed(done) and done or timed
end
if #expired > 0 then
    for _, other in ipairs(expired) do
        redis.call('hdel', key, other)
    end
end
if not reads and not count then
    local announced = redis.pcall('get', announcement)
    if announced == field or announced == 'up:' .. field then
        redis.pcall('del', announcement)
    end
end
return nil

-- Purpose: raises the count of one read or write hold to a target, taking the lock if its mode allows it.
--
-- KEYS[1]  the lock's hash
-- KEYS[2]  the announcement of a writer that waits
-- KEYS[3]  read only: the hold's own timeout key, Redisson's key of the first acquire
-- ARGV[1]  the hold's field, "<client uuid>:<task>.<hold number>", with ":write" at its end for a writer
-- ARGV[2]  the target count of the hold, 1 for a first acquire
-- ARGV[3]  the lease in milliseconds
-- ARGV[4]  the mode: "read" or "write"
-- ARGV[5]  the field of the same owner's hold in the other mode; empty if it has none
-- ARGV[6]  of a read: how many milliseconds its caller has waited, to stay out for an announced writer; -1: it
--          does not stay out. Of a write: "1" if it takes over from its own read hold
-- ARGV[7]  how long a writer that has to wait is announced, in milliseconds; 0: it is not
-- ARGV[8]  what stands before the fields in the names of the timeout keys
--
-- Returns
--   nil      granted: the field stands at the target or above, the TTL is the lease or longer
--   n >= -1  not granted; the TTL of the lock (-1: it has none), of the announcement if the lock is free, or
--            how long the read still stays out, if that is shorter
--   -3       the target is above 1 and the field is gone, or the read hold to take over from is gone
--   -6       another owner waits to take over from its read hold: the two would wait for each other
--
-- An announced writer keeps readers out in pauses: two seconds from the announcement on, then four, then eight
-- each. A read stays out until the end of the pause in which its caller came. So those that come during a pause
-- go in together at its end, and the writer is next once they have left, if that is before the end of the next
-- pause. And no read waits for longer than a pause.
--
-- Run twice it does what it does once: the target is absolute, and a TTL only grows. The first grant of a read
-- looks at a few other fields, and deletes those of readers whose leases are over.
-- Example: free, a read with target 1, lease 30000
--   -> { mode = read, field = 1 }, timeout key and hash with the TTL 30000, nil.

local key, announcement, own = KEYS[1], KEYS[2], KEYS[3]
local field, target, lease = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local reads, partner = ARGV[4] == 'read', ARGV[5]
local prefers = not reads and ARGV[6] == '1'
-- Only a writer that takes over stands behind a mark, because two of them would wait for each other.
local mark = prefers and 'up:' or ''

local function failed(answer)
    return type(answer) == 'table' and answer.err
end

local function clock()
    local time = redis.call('time')
    return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- The writer that is announced, and since when by the server's clock. What has another form announces none.
local function announced()
    local text = redis.pcall('get', announcement)
    local since, who = (type(text) == 'string' and text or ''):match('^(%d+) (.+)$')
    return who, tonumber(since)
end

-- Whose announcement it is, without the number of the hold. A try of which no answer came stays announced until the
-- client has withdrawn it, and its owner tries again with another hold.
local function owner_of(who)
    return who and (who:match('^(.*%.)%d+:write$') or who)
end

-- How long a read stays out whose caller has waited for so long.
local function stays_out(waited)
    local who, since = announced()
    if waited < 0 or not who then
        return 0
    end
    local age = math.max(clock() - since, 0)
    local began, length = 0, 2000
    if age >= 6000 then
        began, length = age - (age - 6000) % 8000, 8000
    elseif age >= 2000 then
        began, length = 2000, 4000
    end
    if waited > age - began then
        return 0
    end
    return began + length - age
end

local function lengthen(which)
    if redis.call('pttl', which) < lease then
        return redis.pcall('pexpire', which, lease)
    end
end

-- Whether a read hold of this field is still within a lease. What cannot be seen counts as alive. While the slot
-- moves to this node, a timeout key that has not arrived yet reads as absent. The server refuses a command for two
-- keys then, unless both are here.
local function is_alive(other, count)
    local timeout = ARGV[8] .. other .. ':rwlock_timeout:'
    for n = math.min(tonumber(count) or 0, 1000), 1, -1 do
        local left = redis.pcall('pttl', timeout .. n)
        if type(left) ~= 'number' or left > 0 or left == -1 then
            return true
        end
    end
    return type(redis.pcall('exists', key, timeout .. '1')) ~= 'number'
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
    local may, out = false, 0
    if reads and mode == 'write' then
        may = partner ~= '' and redis.call('hexists', key, partner) == 1
    elseif reads then
        out = (free or mode == 'read') and stays_out(tonumber(ARGV[6])) or 0
        may = (free or mode == 'read') and out == 0
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
        local who = announced()
        if not may and who and who:sub(1, 3) == 'up:' and owner_of(who) ~= owner_of(mark .. field) then
            return -6
        end
    else
        may = free
    end
    if not may then
        if not reads and mode == 'read' and ARGV[7] ~= '0' then
            local who, since = announced()
            if not who or owner_of(who) == owner_of(mark .. field) or (prefers and who:sub(1, 3) ~= 'up:') then
                -- The pauses count from the first announcement. A moment to come was written before the
                -- clock was put back.
                local now = clock()
                since = math.min(since or now, now)
                local text = string.format('%d %s', since, mark .. field)
                local told = redis.pcall('set', announcement, text, 'px', ARGV[7])
                -- On a server out of memory the writer waits as all waiters do there, and is not announced.
                if failed(told) and not told.err:find('OOM', 1, true) then
                    return told
                end
            end
        end
        local left = redis.call('pttl', free and announcement or key)
        if out > 0 and (left < 0 or out < left) then
            left = out
        end
        return free and math.max(1, left) or left
    end
end

if reads and not count then
    -- Readers that left without a word stay in the hash for as long as others read. Each read adds one field and
    -- looks at more, so these stay fewer than the living ones.
    for _, other in ipairs(redis.call('hrandfield', key, 4)) do
        local acquires = tonumber(redis.call('hget', key, other) or nil)
        if acquires and not other:find(':write$') and not is_alive(other, acquires) then
            expired[#expired + 1] = other
        end
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
    -- A refused command must not change anything. A lock without a TTL would outlive its holder.
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
for _, other in ipairs(expired) do
    redis.call('hdel', key, other)
end
if not reads and not count then
    local who = owner_of((announced()))
    if who == owner_of(field) or who == owner_of('up:' .. field) then
        redis.pcall('del', announcement)
    end
end
return nil

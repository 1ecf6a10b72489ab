-- Purpose: raises the count of one read or write hold to a target, and takes the lock if its mode allows it.
--
-- KEYS[1]  the lock's hash
-- KEYS[2]  the announcement of a waiting writer
-- KEYS[3]  read only: the hold's own timeout key, Redisson's key of the first acquire
-- ARGV[1]  the hold's field, "<client uuid>:<task>.<hold number>", with ":write" at its end for a writer
-- ARGV[2]  the target count of the hold; 1 for a first acquire
-- ARGV[3]  the lease in milliseconds
-- ARGV[4]  the mode: "read" or "write"
-- ARGV[5]  the field of the same owner's hold in the other mode; empty if it has none
-- ARGV[6]  of a read: for how many milliseconds its caller has waited, which limits how long an announced writer
--          delays it; -1: an announced writer does not delay it. Of a write: "1" if it upgrades its own read hold
-- ARGV[7]  for how many milliseconds a writer that must wait is announced; 0: it is not announced
-- ARGV[8]  the prefix of the timeout keys: their names up to the field
--
-- Returns
--   nil      granted: the count is the target or above, the TTL is the lease or longer
--   n >= -1  not granted: the TTL of the lock (-1: it has none), or of the announcement if the lock is free; or
--            for how long the announced writer still delays the read, if that is shorter
--   -3       the target is above 1 and the field is gone, or the read hold to upgrade is gone
--   -6       another owner waits to upgrade its read hold: each of the two would wait for the other
--
-- An announced writer delays readers in pauses: the first takes two seconds from the announcement on, the second
-- four, all others eight. A read waits until the end of the pause in which its caller arrived. So the readers that
-- arrive during a pause enter together at its end. The writer is next once they have left, if they leave before the
-- end of the next pause. No read waits for longer than a pause.
--
-- Idempotent: the target is absolute, and a TTL only grows. The first grant of a read also checks a few other
-- fields, and deletes those of readers whose leases have ended.
-- Example: free, a read with target 1, lease 30000
--   -> { mode = read, field = 1 }, timeout key and hash with the TTL 30000, nil.

local key, announcement, own = KEYS[1], KEYS[2], KEYS[3]
local field, target, lease = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local reads, partner = ARGV[4] == 'read', ARGV[5]
local prefers = not reads and ARGV[6] == '1'
-- The announcement marks a writer that upgrades, because two of them would wait for each other.
local mark = prefers and 'up:' or ''

local function failed(answer)
    return type(answer) == 'table' and answer.err
end

local function clock()
    local time = redis.call('time')
    return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Returns the announced writer, and since when by the server's clock. A value of another form announces none.
local function announced()
    local text = redis.pcall('get', announcement)
    local since, who = (type(text) == 'string' and text or ''):match('^(%d+) (.+)$')
    return who, tonumber(since)
end

-- Returns the owner of an announcement: its field without the number of the hold. An attempt without an answer stays
-- announced until its client withdraws it, and the same owner may try again with another hold meanwhile.
local function owner_of(who)
    return who and (who:match('^(.*%.)%d+:write$') or who)
end

-- Returns for how long an announced writer delays a read whose caller has waited for this long.
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

-- Returns whether the lease of a read hold has not ended. A timeout key that the script cannot read counts as a
-- living hold. While the slot moves to this node, a timeout key that has not arrived yet reads as absent. During that
-- time the server refuses a command with two keys unless both are here.
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
        -- The only reader whose lease has not ended may become the writer. The fields of the other readers
        -- stay in the hash for as long as any client renews it.
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
                -- The pauses count from the first announcement. If its time is in the future, it was
                -- written before the server's clock was set back.
                local now = clock()
                since = math.min(since or now, now)
                local text = string.format('%d %s', since, mark .. field)
                local set_reply = redis.pcall('set', announcement, text, 'px', ARGV[7])
                -- A server out of memory refuses the announcement: the writer waits without one.
                if failed(set_reply) and not set_reply.err:find('OOM', 1, true) then
                    return set_reply
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
    -- The fields of readers that did not release stay in the hash for as long as others read. Each read adds one
    -- field and checks more, so these fields stay fewer than those of the living readers.
    for _, other in ipairs(redis.call('hrandfield', key, 4)) do
        local acquires = tonumber(redis.call('hget', key, other) or nil)
        if acquires and not other:find(':write$') and not is_alive(other, acquires) then
            expired[#expired + 1] = other
        end
    end
end

-- If a server out of memory refuses this first write, nothing was done.
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
    -- A refused command has no effect, and a lock without a TTL would outlive its holder: undo the grant.
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

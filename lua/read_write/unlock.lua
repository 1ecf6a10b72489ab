-- Purpose: sets the count of one read or write hold to a target; at zero it ends the hold. It also settles an
-- acquire whose outcome is unknown, and frees the lock from one holder by force. It never creates a hold.
--
-- KEYS[1]  the lock's hash
-- KEYS[2]  the announcement of a waiting writer
-- KEYS[3]  read only: the hold's own timeout key, Redisson's key of the first acquire
-- ARGV[1]  the hold's field
-- ARGV[2]  the target count; 0 deletes the field, whatever its count
-- ARGV[3]  the channel of the lock's messages
-- ARGV[4]  the command that publishes there: publish, or spublish on a cluster that supports it
-- ARGV[5]  the mode: "read" or "write"
-- ARGV[6]  the prefix of the timeout keys: their names up to the field
-- ARGV[7]  the lease of this hold in milliseconds
--
-- Returns
--   1    the hold has ended
--   0    the hold is still there, at the target
--   nil  the field is not there; the announcement of a writer that only waited is deleted
--
-- The script publishes 0 after the last reader, and also if one reader is left and an upgrade is announced. It
-- publishes 1 after a writer, which also wakes Redisson's readers. The end of a hold begins with commands that a
-- server out of memory does not refuse.
-- Example: { mode = read, a = 1, b = 1 }, the end of a -> { mode = read, b = 1 } with the TTL of b, 1;
-- then the end of b -> no key, message "0", 1.

local key, announcement, own = KEYS[1], KEYS[2], KEYS[3]
local field, target, lease = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[7])
local reads, prefix = ARGV[5] == 'read', ARGV[6]

local function publish(message)
    redis.pcall(ARGV[4], ARGV[3], message)
end

-- Returns the longest TTL among the timeout keys of a field, or nil if the script cannot read one of them. While the
-- slot moves to this node, a timeout key that has not arrived yet reads as absent. During that time the server
-- refuses a command with two keys unless both are here.
local function longest_of(other, count)
    local timeout, longest = prefix .. other .. ':rwlock_timeout:', -2
    for n = math.min(count or 0, 1000), 1, -1 do
        local left = redis.pcall('pttl', timeout .. n)
        if type(left) ~= 'number' then
            return nil
        end
        longest = math.max(longest, left)
    end
    if longest == -2 and count and type(redis.pcall('exists', key, timeout .. '1')) ~= 'number' then
        return nil
    end
    return longest
end

local count = tonumber(redis.call('hget', key, field) or nil)
if target > 0 then
    if not count then
        return nil
    end
    if count ~= target then
        redis.call('hincrby', key, field, target - count)
    end
    return 0
end

-- Returns the announced writer. A value of another form or another type announces none, and must not prevent the
-- end of the hold.
local function announced()
    local text = redis.pcall('get', announcement)
    return (type(text) == 'string' and text or ''):match('^%d+ (.+)$')
end

local mine, withdrawn = -2, false
if reads then
    mine = redis.call('pttl', own)
    redis.call('del', own)
    -- A hold of Redisson has a timeout key for each acquire.
    for n = math.min(count or 0, 1000), 2, -1 do
        redis.pcall('del', prefix .. field .. ':rwlock_timeout:' .. n)
    end
else
    local who = announced()
    if who == field or who == 'up:' .. field then
        redis.call('del', announcement)
        withdrawn = true
    end
end
if redis.call('hdel', key, field) == 0 then
    if withdrawn then
        -- Notifies the readers that the announcement delayed.
        publish('1')
    end
    return nil
end

local fields = redis.call('hlen', key)
if fields == 0 or (fields == 1 and redis.call('hexists', key, 'mode') == 1) then
    redis.call('del', key)
    publish(reads and '0' or '1')
    return 1
end
if not reads then
    -- Only read holds of the same owner are left.
    redis.call('hset', key, 'mode', 'read')
elseif redis.call('hget', key, 'mode') ~= 'read' then
    return 1
end

-- The TTL of the key is that of its longest hold. If this hold was the longest, the script sets the TTL to that of
-- the longest hold that is left. It searches for that hold only if this hold was within a quarter of its lease of the
-- key's TTL. It stops at the first hold within an eighth of that TTL, which it soon finds among renewed readers. If
-- both bounds were equal, the error would add up from unlock to unlock. If an upgrade is announced, the script also
-- checks whether more than one reader is left.
local left = redis.call('pttl', key)
local shortens = not reads or mine + lease / 4 >= left
local upgrades = reads and (announced() or ''):sub(1, 3) == 'up:'
if shortens or upgrades then
    local longest, known, living, deleted = -2, true, 0, 0
    local others = redis.call('hgetall', key)
    for i = 1, #others, 2 do
        local other = longest_of(others[i], tonumber(others[i + 1]))
        if other ~= -2 then
            living = living + 1
        elseif deleted < 1000 and tonumber(others[i + 1]) and not others[i]:find(':write$') then
            -- The lease of this reader has ended. Fields beyond the bound stay for the next script.
            redis.call('hdel', key, others[i])
            deleted = deleted + 1
        end
        if other then
            longest = math.max(longest, other)
        else
            known = false
        end
        if (not shortens or longest + left / 8 >= left) and (not upgrades or living > 1) then
            break
        end
    end
    if known and longest == -2 then
        -- The leases of all other holds have ended.
        redis.call('del', key)
        publish(reads and '0' or '1')
        return 1
    elseif shortens and known and longest >= 0 and longest + left / 8 < left then
        redis.pcall('pexpire', key, math.max(longest, 1))
    end
    -- The reader that is left may be the one that waits for its upgrade.
    upgrades = upgrades and living <= 1
end
if not reads then
    publish('1')
elseif upgrades then
    publish('0')
end
return 1

-- Purpose: makes the count of one read or write hold what its client says; zero ends the hold. It also settles
-- an outcome that no client saw: it never creates a hold. And it frees the lock from one holder by force.
--
-- KEYS[1]  the lock's hash
-- KEYS[2]  the announcement of a writer that waits
-- KEYS[3]  read only: the hold's own timeout key, Redisson's key of the first acquire
-- ARGV[1]  the hold's field
-- ARGV[2]  the target count; 0 deletes the field whatever its count was
-- ARGV[3]  the channel of the lock's messages
-- ARGV[4]  the command that publishes there: publish, or spublish on a cluster that knows it
-- ARGV[5]  the mode: "read" or "write"
-- ARGV[6]  what stands before the fields in the names of the timeout keys
-- ARGV[7]  the lease of this hold in milliseconds
--
-- Returns
--   1    the hold has ended
--   0    the hold stands at the target
--   nil  there was no such hold; a writer that only waited is not announced any more
--
-- The message is 0 after the last reader, and if one is left and a reader is announced that wants to become the
-- writer. It is 1 after a writer, which wakes Redisson's readers too. The end of a hold uses no command
-- first that a server out of memory refuses.
-- Example: { mode = read, a = 1, b = 1 }, the end of a -> { mode = read, b = 1 } with the TTL of b, 1;
-- then the end of b -> no key, message "0", 1.

local key, announcement, own = KEYS[1], KEYS[2], KEYS[3]
local field, target, lease = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[7])
local reads, prefix = ARGV[5] == 'read', ARGV[6]

local function publish(message)
    redis.pcall(ARGV[4], ARGV[3], message)
end

-- The TTL of the longest lease among the timeout keys of a field; nil if one cannot be seen. While the slot moves
-- to this node, a timeout key that has not arrived yet reads as absent. The server refuses a command for two keys
-- then, unless both are here.
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

-- The writer that is announced. What has another form, or another type, announces none, and must not keep the
-- hold from ending.
local function announced()
    local text = redis.pcall('get', announcement)
    return (type(text) == 'string' and text or ''):match('^%d+ (.+)$')
end

local mine, withdrawn = -2, false
if reads then
    mine = redis.call('pttl', own)
    redis.call('del', own)
    -- A hold of Redisson has a key for each acquire.
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
        -- The readers that it kept out.
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
    -- What is left are read holds of the same owner.
    redis.call('hset', key, 'mode', 'read')
elseif redis.call('hget', key, 'mode') ~= 'read' then
    return 1
end

-- The key lives as long as its longest hold. If it was this one, then as long as the longest that is left. The
-- script looks for that if this hold was within a quarter of its lease of the key's TTL, and stops at the first
-- hold within an eighth of that TTL: among watched readers that is soon, and equal bounds would add up from
-- unlock to unlock. It also looks whether a reader is left beside one that wants to become the writer.
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
            -- A reader that left without a word. What is beyond the bound stays for the next look.
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
        -- The others are gone without a word.
        redis.call('del', key)
        publish(reads and '0' or '1')
        return 1
    elseif shortens and known and longest >= 0 and longest + left / 8 < left then
        redis.pcall('pexpire', key, math.max(longest, 1))
    end
    -- The reader that is left may be the one that waits.
    upgrades = upgrades and living <= 1
end
if not reads then
    publish('1')
elseif upgrades then
    publish('0')
end
return 1

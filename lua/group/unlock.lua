-- Purpose: lowers the count of one hold of several values of a group to a target; at zero it frees the values
-- and notifies the waiters. It also settles an acquire whose outcome is unknown.
--
-- KEYS[1]    the group's hash: see lua/group/acquire.lua
-- ARGV[1]    the hold's field
-- ARGV[2]    the target count; 0 frees the values, whatever their counts
-- ARGV[3]    the channel of the group's messages
-- ARGV[4]    the command that publishes there: publish, or spublish on a cluster that supports it
-- ARGV[5..]  the hashes of the values
--
-- Returns
--   1    the hold had all of the values, and they were released
--   0    the hold has all of the values, at the target
--   nil  the hold does not have all of the values: it was lost, or a repeated unlock already ended it. The target
--        0 frees those that it has; another target changes nothing
--
-- Idempotent. The final unlock begins with HDEL, because a server out of memory lets a script continue that has
-- already written.
-- Example: { x = a, x:a:expire_time = .., x:a:lock_count = 2 }, field a, target 0 -> no hash, message "0", 1.

local key, field, target = KEYS[1], ARGV[1], tonumber(ARGV[2])
local own = {}

for i = 5, #ARGV do
    local value = ARGV[i]
    local prefix = value .. ':' .. field
    local is_own = redis.call('hget', key, value) == field
    if is_own then
        own[#own + 1] = prefix .. ':lock_count'
    end
    if target == 0 then
        if is_own then
            redis.call('hdel', key, value, prefix .. ':expire_time', prefix .. ':lock_count')
        else
            -- Another owner took the value: delete what is left of this hold.
            redis.call('hdel', key, prefix .. ':expire_time', prefix .. ':lock_count')
        end
    end
end
-- A hold that lacks one of its values is lost.
local is_whole = #own == #ARGV - 4
if target > 0 then
    if not is_whole then
        return nil
    end
    for _, count in ipairs(own) do
        if redis.call('hget', key, count) ~= ARGV[2] then
            redis.call('hset', key, count, ARGV[2])
        end
    end
    return 0
end
if #own > 0 then
    redis.pcall(ARGV[4], ARGV[3], '0')
end
return is_whole and 1 or nil

-- Purpose: lowers the count of one hold of several values of a group to a target; at zero the values are free
-- and the waiters are notified. Settles an acquire too.
--
-- KEYS[1]    the group's hash: see lua/group/acquire.lua
-- ARGV[1]    the hold's field
-- ARGV[2]    the target count; 0 frees the values whatever their counts were
-- ARGV[3]    the channel of the group's messages
-- ARGV[4]    the command that publishes there: publish, or spublish on a cluster that knows it
-- ARGV[5..]  the hashes of the values
--
-- Returns
--   1    all values were the hold's, and were released
--   0    all values are the hold's, at the target
--   nil  some of the values are not the hold's: it was lost, or a repetition already ended it. The target 0 frees
--        those that are; another target changes nothing
--
-- Run twice it does what it does once. The final unlock begins with HDEL.
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
            -- What is left of the hold where another owner took the value.
            redis.call('hdel', key, prefix .. ':expire_time', prefix .. ':lock_count')
        end
    end
end
-- All or none: a hold without one of its values is lost.
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

-- Purpose: lowers the count of one hold of several values of a group to a target; at zero the values are free
-- and the waiters are notified. Settles an acquire too.
--
-- KEYS[1]    the group's hash: see lua/group/acquire.lua
-- ARGV[1]    the hold's field
-- ARGV[2]    the count that shall be left; 0 frees the values whatever their counts were
-- ARGV[3]    the channel of the group's messages
-- ARGV[4]    the command that publishes there: publish, or spublish on a cluster that knows it
-- ARGV[5..]  the hashes of the values
--
-- Returns
--   1    the values were released
--   0    the hold is still there, at the target
--   nil  the hold has none of the values: it was lost, or a repetition already ended it
--
-- Run twice it does what it does once. The final unlock begins with HDEL.
-- Example: { x = a, x:a:expire_time = .., x:a:lock_count = 2 }, field a, target 0 -> no hash, message "0", 1.

local key, field, target = KEYS[1], ARGV[1], tonumber(ARGV[2])
local done = false

for i = 5, #ARGV do
    local value = ARGV[i]
    local ends, count = value .. ':' .. field .. ':expire_time', value .. ':' .. field .. ':lock_count'
    local is_own = redis.call('hget', key, value) == field
    if target == 0 then
        if is_own then
            redis.call('hdel', key, value, ends, count)
        else
            -- What is left of the hold where another owner took the value.
            redis.call('hdel', key, ends, count)
        end
    elseif is_own and redis.call('hget', key, count) ~= ARGV[2] then
        redis.call('hset', key, count, ARGV[2])
    end
    done = done or is_own
end
if not done then
    return nil
end
if target > 0 then
    return 0
end
redis.pcall(ARGV[4], ARGV[3], '0')
return 1

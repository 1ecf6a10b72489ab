-- Purpose: frees values of a group from the given holder, and never from a later one.
--
-- KEYS[1]    the group's hash: see lua/group/acquire.lua
-- ARGV[1]    the field of the holder, as the client read it before
-- ARGV[2]    the channel of the group's messages
-- ARGV[3]    the command that publishes there: publish, or spublish on a cluster that supports it
-- ARGV[4..]  the hashes of the values
--
-- Returns
--   1  that holder had some of the values; they are free, and the waiters are notified
--   0  it had none; nothing was done
--
-- Example: { x = a, .. , y = b, .. }, field a, values x and y -> { y = b, .. }, message "0", 1.

local key, field, freed = KEYS[1], ARGV[1], 0

for i = 4, #ARGV do
    local value = ARGV[i]
    if redis.call('hget', key, value) == field then
        local prefix = value .. ':' .. field
        redis.call('hdel', key, value, prefix .. ':expire_time', prefix .. ':lock_count')
        freed = 1
    end
end
if freed == 1 then
    redis.pcall(ARGV[3], ARGV[2], '0')
end
return freed

-- Purpose: a write to the hash of a group that changes nothing, for a WAIT behind it.
--
-- KEYS[1]  the group's hash: see lua/group/acquire.lua
-- ARGV[1]  the hold's field
-- ARGV[2]  the hash of one of its values
--
-- Returns
--   1  written
--   0  the value is not the hold's; nothing was done
--
-- Example: { x = a, x:a:lock_count = 1, .. }, field a, value x -> the same, 1.

if redis.call('hget', KEYS[1], ARGV[2]) ~= ARGV[1] then
    return 0
end
redis.call('hincrby', KEYS[1], ARGV[2] .. ':' .. ARGV[1] .. ':lock_count', 0)
return 1

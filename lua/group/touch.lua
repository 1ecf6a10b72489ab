-- Purpose: writes to the hash of a group without a change, so that the next WAIT of the same connection covers
-- everything that the server executed before, for any client.
--
-- KEYS[1]  the group's hash: see lua/group/acquire.lua
-- ARGV[1]  the hold's field
-- ARGV[2]  the hash of one of its values
--
-- Returns
--   1  the hold has the value, and the script wrote
--   0  the hold does not have the value: the script wrote nothing
--
-- Example: { x = a, x:a:lock_count = 1, .. }, field a, value x -> the same, 1.

if redis.call('hget', KEYS[1], ARGV[2]) ~= ARGV[1] then
    return 0
end
redis.call('hincrby', KEYS[1], ARGV[2] .. ':' .. ARGV[1] .. ':lock_count', 0)
return 1

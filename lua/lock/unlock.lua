-- Purpose: lowers the count of one hold to a target; at zero the lock is free and waiters are told.
--
-- KEYS[1]  the lock's hash
-- ARGV[1]  the hold's field
-- ARGV[2]  the count that shall be left; 0 deletes the field whatever its count was
-- ARGV[3]  the channel of the lock's messages
--
-- Returns
--   1    the lock was released
--   0    the hold is still there, at the target
--   nil  the field is not there: the hold was lost, or a repeated unlock already ended it
--
-- The final unlock uses no command that a server out of memory refuses. An inner unlock leaves the
-- TTL alone.
-- Example: { field = 2 }, target 1 -> { field = 1 }, 0; then target 0 -> no key, message "0", 1.

local key, field, target = KEYS[1], ARGV[1], tonumber(ARGV[2])

if target == 0 then
    if redis.call('hdel', key, field) == 0 then
        return nil
    end
    redis.pcall('publish', ARGV[3], '0')
    return 1
end

local count = tonumber(redis.call('hget', key, field) or nil)
if not count then
    return nil
end
if count > target then
    redis.call('hincrby', key, field, target - count)
end
return 0

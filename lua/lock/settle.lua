-- Purpose: makes the count of one hold what its client says, after an outcome nobody saw.
--
-- KEYS[1]  the lock's hash
-- ARGV[1]  the hold's field
-- ARGV[2]  the count that the hold shall have; 0 deletes the field and tells the waiters
-- ARGV[3]  the channel of the lock's messages
--
-- Returns
--   1    the field was there and now stands at the target (or is gone, for 0)
--   nil  the field is not there; nothing was done
--
-- It never creates a field and never touches the TTL, so that it cannot revive a hold.
-- Example: { field = 2 }, target 1 -> { field = 1 }, 1.

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
if count ~= target then
    redis.call('hincrby', key, field, target - count)
end
return 1

-- Purpose: raises the count of one hold to a target, taking the lock if it is free.
--
-- KEYS[1]  the lock's hash
-- ARGV[1]  the hold's field, "<client uuid>:<task>.<hold number>"
-- ARGV[2]  the count that the hold shall have, 1 for a first acquire
-- ARGV[3]  the lease in milliseconds
--
-- Returns
--   nil      granted: the field stands at the target or above, the TTL is the lease or longer
--   n >= -1  held by somebody else, whose TTL is n milliseconds (-1: it has none)
--   -3       the target is above 1 and the field is gone: the hold was lost
--
-- Run twice it does what it does once: the target is absolute, and a TTL only grows.
-- Example: free, target 1, lease 30000 -> { field = 1 }, TTL 30000, nil.

local key, field, target, lease = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3]

if target == 1 and redis.call('exists', key) == 0 then
    redis.call('hincrby', key, field, 1)
    local timed = redis.pcall('pexpire', key, lease)
    if type(timed) == 'table' and timed.err then
        -- A lock without a TTL would outlive its holder: undo the grant.
        redis.call('hdel', key, field)
        return timed
    end
    return nil
end

local count = tonumber(redis.call('hget', key, field) or nil)
if not count then
    return target == 1 and redis.call('pttl', key) or -3
end
-- The TTL first: refused there, the count stays as it was.
if redis.call('pttl', key) < tonumber(lease) then
    redis.call('pexpire', key, lease)
end
if count < target then
    redis.call('hincrby', key, field, target - count)
end
return nil

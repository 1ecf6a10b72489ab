-- Purpose: leaves a lock to the rest of a time, after its hold has ended.
--
-- KEYS[1]  the lock's hash
-- ARGV[1]  the hold's field
-- ARGV[2]  the rest of the time, in milliseconds; at least 1
--
-- Returns
--   1    the field was there, and the key ends after the rest
--   nil  the field is not there; nothing was done
--
-- It is sent only for a hold that has ended, so it may shorten the TTL. It publishes nothing: the lock is not
-- free. Waiters learn the new TTL at their next look.
-- Example: { field = 1 }, TTL 30 s, rest 5 s -> { field = 1 }, TTL 5 s, 1.

if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
    return nil
end
redis.call('pexpire', KEYS[1], ARGV[2])
return 1

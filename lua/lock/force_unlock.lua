-- Purpose: frees the lock from one holder, whoever that is; never from the one after it.
--
-- KEYS[1]  the lock's hash
-- ARGV[1]  the field of the holder, as it was read before
-- ARGV[2]  the channel of the lock's messages
--
-- Returns
--   1  that holder had the lock; the key is deleted and waiters are told
--   0  it had not; nothing was done
--
-- Example: { "uuid:7" = 2 }, field "uuid:7" -> no key, message "0", 1; once more -> 0.

if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
    return 0
end
redis.call('del', KEYS[1])
redis.pcall('publish', ARGV[2], '0')
return 1

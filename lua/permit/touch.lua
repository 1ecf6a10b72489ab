-- Purpose: writes without a change, so that the next WAIT of the same connection covers everything
-- that the server executed before, for any client.
--
-- KEYS[1]  the free permits, a number
-- KEYS[2]  the set of permits in use
-- ARGV[1]  the id of the permit
--
-- Returns
--   1  the permit is in use, and the script wrote
--   0  the permit is not in use, or the semaphore does not exist: the script wrote nothing
--
-- The script uses INCRBY, because a ZADD with the same score would not count as a write.
-- Example: 1 free, { a } -> 1 free, { a }, 1.

if not redis.call('zscore', KEYS[2], ARGV[1]) or redis.call('exists', KEYS[1]) == 0 then
    return 0
end
redis.call('incrby', KEYS[1], 0)
return 1

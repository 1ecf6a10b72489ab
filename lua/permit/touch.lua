-- Purpose: writes, and changes nothing: so that a WAIT behind it on the same connection covers
-- everything that the server executed before, from any client.
--
-- KEYS[1]  the free permits, a number
-- KEYS[2]  the set of permits in use
-- ARGV[1]  the id of the permit
--
-- Returns
--   1  the permit is in use, and something was written
--   0  it is not in use: nothing was written
--
-- A ZADD of the same score would write nothing.
-- Example: 1 free, { a } -> 1 free, { a }, 1.

if not redis.call('zscore', KEYS[2], ARGV[1]) or redis.call('exists', KEYS[1]) == 0 then
    return 0
end
redis.call('incrby', KEYS[1], 0)
return 1

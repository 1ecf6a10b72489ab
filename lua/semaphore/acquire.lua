-- Purpose: gives permits of a semaphore to one request: all that it asks for, or none.
--
-- KEYS[1]  the free permits, a number; Redisson's key
-- KEYS[2]  the ledger, a sorted set of lockdog's own: request -> how many permits it has (below 2^31), or
--          the server's time in ms at which it ended. Its member '' says that it is complete: every request
--          with permits of this number is in it
-- ARGV[1]  the request, which is never used again after its end
-- ARGV[2]  how many permits; 0: all that are free
--
-- Returns { what, free, has }
--   what  1: granted; 0: too few are free, nothing was done; -3: the request has already ended
--   free  how many are free now
--   has   how many the request has
--   error WRONGTYPE: the free permits are not a number below 2^53; nothing was done
--
-- Idempotent: a request that is in the ledger keeps the permits that it has. ZADD comes first, because a
-- server out of memory refuses only the first write of a script.
-- The ledger lasts as long as the free permits, and an hour longer if they have a TTL. If there is no number of free
-- permits, no request has permits any more, and the script deletes those of an earlier number.
-- Example: 3 free, u:1.1 asks for 2 -> 1 free, { u:1.1 = 2 }, { 1, 1, 2 }; once more -> the same.

local permits, ledger, request = KEYS[1], KEYS[2], ARGV[1]

local has = tonumber(redis.call('zscore', ledger, request) or nil)
local value = redis.call('get', permits)
local free = not value and 0
    or (value == '0' or string.match(value, '^-?[1-9]%d*$')) and tonumber(value)
if not free or math.abs(free) >= 2 ^ 53 then
    return redis.error_reply('WRONGTYPE the free permits are no number below 2^53')
end
if has and has >= 2 ^ 31 then
    return { -3, free, 0 }
end
if not value then
    -- An error does not matter here, because the script grants nothing in any case.
    redis.pcall('zremrangebyscore', ledger, 1, 2 ^ 31 - 1)
    redis.pcall('pexpire', ledger, 3600000)
    return { 0, 0, 0 }
end
if has then
    return { 1, free, has }
end

local wanted = tonumber(ARGV[2])
if wanted == 0 then
    wanted = math.min(free, 2 ^ 31 - 1)
end
if wanted < 1 or free < wanted then
    return { 0, free, 0 }
end

redis.call('zadd', ledger, 0, '', string.format('%.0f', wanted), request)
free = redis.pcall('decrby', permits, string.format('%.0f', wanted))
if type(free) == 'table' then
    -- The user has no permission for DECRBY: delete the share. Its release would add permits that it never took.
    redis.call('zrem', ledger, request)
    return free
end
local left = redis.call('pttl', permits)
if left >= 0 then
    redis.pcall('pexpire', ledger, string.format('%.0f', left + 3600000))
else
    -- PERSIST fails only if the user has no permission for it, and the share is already written.
    redis.pcall('persist', ledger)
end
return { 1, free, wanted }

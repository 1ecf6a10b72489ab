-- Purpose: raises the count of one hold to a target, and takes the lock if it is free, as
-- lua/lock/acquire.lua does. Returns the fencing token of the hold.
--
-- KEYS[1]  the lock's hash
-- KEYS[2]  the counter of the lock's tokens: the last token, in decimal; Redisson's key
-- ARGV[1]  the hold's field, "<client uuid>:<task>.<hold number>"
-- ARGV[2]  the target count of the hold; 1 for a first acquire
-- ARGV[3]  the lease in milliseconds
-- ARGV[4]  'clock': a token is at least the server's clock in microseconds; 'one': it is the next number
--
-- Returns
--   token    granted, as text: the count is the target or above, the TTL is the lease or longer
--   n >= -1  another hold has the lock, and its TTL is n milliseconds (-1: it has none)
--   -3       the target is above 1 and the field is gone: the hold was lost
--   error    WRONGTYPE: the counter is not a number below 2^53 - 1; nothing was done
--
-- Idempotent: the target is absolute, and a TTL only grows. While the field is there, no other acquire
-- changes the counter, so the counter has the token of the hold. Lua numbers are exact up to 2^53, and
-- TIME in microseconds is below that until the year 2255.
-- Example: free, counter 7, target 1, lease 30000, 'one' -> { field = 1 }, counter 8, "8".

local key, counter = KEYS[1], KEYS[2]
local field, target, lease = ARGV[1], tonumber(ARGV[2]), ARGV[3]

local function text(number)
    -- tostring would write 1.7e+15.
    return string.format('%.0f', number)
end

local function is_error(reply)
    return type(reply) == 'table' and reply.err
end

-- Returns the last token, 0 if there is none; or false and an error.
local function last_token()
    local value = redis.pcall('get', counter)
    if is_error(value) and not string.find(value.err, 'WRONGTYPE', 1, true) then
        return false, value
    end
    local token = 0
    if value then
        token = type(value) == 'string' and string.match(value, '^%d+$') and tonumber(value)
    end
    if not token or token >= 2 ^ 53 - 1 then
        return false, redis.error_reply('WRONGTYPE the counter of the fencing tokens is no number below 2^53 - 1')
    end
    return token
end

local function next_token(last)
    if ARGV[4] ~= 'clock' then
        return text(last + 1)
    end
    local clock = redis.call('time')
    return text(math.max(last + 1, clock[1] * 1000000 + clock[2]))
end

if target == 1 and redis.call('exists', key) == 0 then
    local last, refusal = last_token()
    if refusal then
        return refusal
    end
    local token = next_token(last)
    redis.call('hincrby', key, field, 1)
    local done = redis.pcall('pexpire', key, lease)
    if not is_error(done) then
        -- The counter has no TTL, because a counter that expires would restart.
        done = redis.pcall('set', counter, token)
    end
    if is_error(done) then
        -- A lock without a TTL would outlive its holder, and a lock without a token does not protect the
        -- resource: undo the grant.
        redis.call('hdel', key, field)
        return done
    end
    return token
end

local count = tonumber(redis.call('hget', key, field) or nil)
if not count then
    return target == 1 and redis.call('pttl', key) or -3
end
local last, refusal = last_token()
if refusal then
    return refusal
end
local token = text(last)
if last == 0 then
    -- The counter was deleted during the hold.
    token = next_token(last)
    redis.call('set', counter, token)
end
local left = redis.call('pttl', key)
local missing = target - count
if missing > 0 then
    redis.call('hincrby', key, field, missing)
end
if left < tonumber(lease) then
    local timed = redis.pcall('pexpire', key, lease)
    if is_error(timed) then
        -- A refused acquire has no effect: undo the count.
        if missing > 0 then
            redis.call('hincrby', key, field, -missing)
        end
        return timed
    end
end
return token

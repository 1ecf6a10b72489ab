-- Purpose: hands the lock over from one hold to another hold of the same client, as lua/lock/transfer.lua
-- does, with a new fencing token.
--
-- KEYS[1]  the lock's hash
-- KEYS[2]  the counter of the lock's tokens: the last token, in decimal; Redisson's key
-- ARGV[1]  the field of the hold that ends, with any count
-- ARGV[2]  the field of the hold that begins, with a count of 1
-- ARGV[3]  its lease in milliseconds
-- ARGV[4]  the channel of the lock's messages; empty if its releases are not published
-- ARGV[5]  the command that publishes there: publish, or spublish on a cluster that supports it
-- ARGV[6]  'clock': a token is at least the server's clock in microseconds; 'one': it is the next number
-- ARGV[7]  the list of the waiting clients; empty if the client may not use it
--
-- Returns
--   { n, token }  handed over, with this token as text; n >= 0: n other clients wait, as there; -1: their
--                 number is unknown
--   -2            the first hold ended and the second could not begin, for example because the counter is
--                 not a number: the lock is free, the waiters are notified
--   nil           neither hold is there: the first one was lost
--   error         WRONGTYPE: the second hold is there, and the counter is not a number below 2^53 - 1
--
-- Idempotent: without the first field it changes nothing, except that it writes the counter again if it was
-- deleted. HDEL comes before all other writes, because a server out of memory lets a script continue that has
-- already written.
-- Example: { a = 2 }, counter 7, from a to b, lease 30000, 'one' -> { b = 1 }, TTL 30000, counter 8,
--   { 0, "8" }; a second run -> { 0, "8" }.

local key, counter = KEYS[1], KEYS[2]
local from, to, channel = ARGV[1], ARGV[2], ARGV[4]

local function text(number)
    -- tostring would write 1.7e+15.
    return string.format('%.0f', number)
end

-- Returns the last token, 0 if there is none; nil if the counter is not a valid number.
local function last_token()
    local value = redis.pcall('get', counter)
    if not value then
        return 0
    end
    local token = type(value) == 'string' and string.match(value, '^%d+$') and tonumber(value)
    return token and token < 2 ^ 53 - 1 and token or nil
end

-- Returns false if the user has no permission for TIME.
local function next_token(last)
    if ARGV[6] ~= 'clock' then
        return text(last + 1)
    end
    local clock = redis.pcall('time')
    return not clock.err and text(math.max(last + 1, clock[1] * 1000000 + clock[2]))
end

local last = last_token()
local token = last and text(last)

if redis.call('hdel', key, from) == 1 then
    token = last and next_token(last)
    local granted = token and redis.pcall('hincrby', key, to, 1)
    local timed = type(granted) == 'number' and redis.pcall('pexpire', key, ARGV[3])
    -- The counter has no TTL, because a counter that expires would restart.
    local stored = timed == 1 and redis.pcall('set', counter, token)
    if not stored or stored.err then
        -- A lock without a TTL would outlive its holder, and a lock without a token does not protect the
        -- resource: undo the grant.
        redis.pcall('hdel', key, to)
        if channel ~= '' then
            redis.pcall(ARGV[5], channel, '0')
        end
        return -2
    end
elseif redis.call('hexists', key, to) == 0 then
    return nil
elseif not last then
    return redis.error_reply('WRONGTYPE the counter of the fencing tokens is no number below 2^53 - 1')
elseif last == 0 then
    -- The counter was deleted during the second hold.
    token = next_token(last)
    redis.call('set', counter, token)
end

if channel == '' then
    return { -1, token }
end
local asked = ARGV[5] == 'spublish' and 'shardnumsub' or 'numsub'
local list = ARGV[7] or ''
if list == '' then
    return { redis.pcall('pubsub', asked, channel)[2] or -1, token }
end
local listening = redis.pcall('pubsub', asked, channel, list)
if not listening[2] then
    return { -1, token }
end
-- A listed client listens on both channels.
local unlisted = math.max(listening[2] - listening[4], 0)
return { unlisted + (tonumber(redis.pcall('zcard', list)) or 0), token }

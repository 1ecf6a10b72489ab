-- Purpose: gives permits of a semaphore to one client: all of them, or none.
--
-- KEYS[1]  the free permits, a number; Redisson's key
-- KEYS[2]  the sorted set of the permits in use: id -> the server's time at which it expires, in ms;
--          Redisson's key
-- ARGV[1]  the lease in milliseconds
-- ARGV[2]  the channel of the semaphore's messages
-- ARGV[3]  the command that publishes there: publish, or spublish on a cluster that supports it
-- ARGV[4]  and all that follow: the ids of the permits, each given once
--
-- Returns { what, free, next }
--   what  1: granted, every id is in the set for the lease or longer; 0: too few are free
--   free  how many are free now
--   next  if too few are free: in how many milliseconds the next permit expires; -1 if none does
--   error WRONGTYPE: the free permits are not a number below 2^53; nothing was done
--
-- First the script returns expired permits to the free ones: up to 100, or as many as the call needs, which is up to
-- 1,000. Idempotent: an id that is in the set costs no further permit. A server out of memory refuses DECRBY if it is
-- the first write. If expired permits were returned before, the server lets the script continue.
-- Example: 3 free, ids a and b, lease 10000 -> 1 free, { a = now + 10000, b = now + 10000 }, { 1, 1, -1 }.

local permits, in_use = KEYS[1], KEYS[2]

local function text(number)
    -- tostring would write 1.7e+12.
    return string.format('%.0f', number)
end

local value = redis.call('get', permits) or '0'
local free = (value == '0' or string.match(value, '^-?[1-9]%d*$')) and tonumber(value)
if not free or math.abs(free) >= 2 ^ 53 then
    return redis.error_reply('WRONGTYPE the free permits are no number below 2^53')
end
local clock = redis.call('time')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

-- With fewer, a call for more than 100 permits would find too few of them, although all are free.
local most = math.min(math.max(100, #ARGV - 3 - free), 1000)
local expired = redis.call('zrangebyscore', in_use, '-inf', text(now), 'limit', 0, text(most))
if #expired > 0 then
    redis.call('zrem', in_use, unpack(expired))
    free = redis.pcall('incrby', permits, #expired)
    if type(free) == 'table' then
        -- The user has no permission for INCRBY: keep the permits as expired, so that they are not lost.
        for _, id in ipairs(expired) do
            redis.call('zadd', in_use, text(now), id)
        end
        return free
    end
end

local function publish()
    if #expired > 0 and free > 0 then
        redis.pcall(ARGV[3], ARGV[2], text(free))
    end
end

local missing = {}
local known = {}
for i = 4, #ARGV do
    local ends = tonumber(redis.call('zscore', in_use, ARGV[i]) or nil)
    if not ends then
        missing[#missing + 1] = ARGV[i]
    elseif ends < now + ARGV[1] then
        known[#known + 1] = ARGV[i]
    end
end

if #missing > 0 and free < #missing then
    local first = redis.call('zrange', in_use, 0, 0, 'withscores')
    local ends = tonumber(first[2])
    local next = -1
    -- 922337203685477 means that it never expires.
    if ends and ends < 922337203685477 then
        next = math.max(0, ends - now)
    end
    publish()
    return { 0, free, next }
end

if #missing > 0 then
    free = redis.call('decrby', permits, #missing)
end
local ends = text(now + ARGV[1])
local refusal
for _, ids in ipairs({ missing, known }) do
    for _, id in ipairs(ids) do
        local added = redis.pcall('zadd', in_use, ends, id)
        if type(added) == 'table' and added.err then
            refusal = added
        end
    end
end
-- The set expires together with the number. If it expired later, permits of an earlier number would be in use. If it
-- expired earlier, permits would be lost.
local left = redis.call('pttl', permits)
if left >= 0 then
    -- In its last millisecond a key has a TTL of 0.
    local timed = redis.pcall('pexpire', in_use, math.max(left, 1))
    refusal = refusal or type(timed) == 'table' and timed
else
    redis.pcall('persist', in_use)
end
if refusal then
    -- Permits that are not in the set would be lost: undo the grant.
    for _, id in ipairs(missing) do
        redis.pcall('zrem', in_use, id)
    end
    redis.pcall('incrby', permits, #missing)
    return refusal
end
publish()
return { 1, free, -1 }

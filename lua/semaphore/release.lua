-- Purpose: lowers what one request has of a semaphore: after a release, and after an outcome that no client saw.
--
-- KEYS[1]  the free permits, a number
-- KEYS[2]  the ledger: request -> how many permits it has, or when it ended; '' if it was not lost
-- ARGV[1]  the request
-- ARGV[2]  how many permits it keeps; at 0 it ends
-- ARGV[3]  the channel of the semaphore's messages
-- ARGV[4]  the command that publishes there: publish, or spublish on a cluster that knows it
-- ARGV[5]  1: a command of this request may arrive later; its end is remembered for an hour. Else 0
-- ARGV[6]  how many permits the request has for certain, as its client knows; 0: it does not know
--
-- Returns
--   1     the request had more, and the rest is given back; or it has as many as it keeps, or fewer
--   nil   the ledger does not know it: it has ended, or others gave its permits back
--   error WRONGTYPE: the free permits are no number below 2^53; nothing was done
--
-- A ledger without its member '' was lost (deleted, evicted): then the client's number counts, once. A
-- ledger that has it knows every request with permits. The semaphore is not created again. ZREM comes first,
-- because a server out of memory lets a script go on that has written. A ledger without
-- permits in use ends an hour after the number has ended.
-- Example: 1 free, { u:1.1 = 2 }, keeps 0 -> 3 free, {}, message "3", 1; once more -> nil.

local permits, ledger, request = KEYS[1], KEYS[2], ARGV[1]
local keeps, doubt, known = tonumber(ARGV[2]), ARGV[5] == '1', tonumber(ARGV[6])

local value = redis.call('get', permits) or nil
local text = value or '0'
local free = (text == '0' or string.match(text, '^-?[1-9]%d*$')) and tonumber(text)
if not free or math.abs(free) >= 2 ^ 53 then
    return redis.error_reply('WRONGTYPE the free permits are no number below 2^53')
end
local has = tonumber(redis.call('zscore', ledger, request) or nil)
local is_whole = redis.call('zscore', ledger, '')
local was_lost = not has and value and known > keeps and not is_whole
if was_lost then
    has = known
end
local is_known = has and has < 2 ^ 31
if is_known and has <= keeps then
    return 1
end

local clock = redis.call('time')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local remembers = keeps == 0 and (doubt or was_lost)
if is_known or remembers then
    redis.call('zrem', ledger, request)
end
if is_known and keeps > 0 then
    redis.call('zadd', ledger, string.format('%.0f', keeps), request)
elseif remembers then
    redis.call('zadd', ledger, string.format('%.0f', now), request)
    -- Some old ends. By pcall, because the permits are not given back yet.
    local old = redis.pcall('zrangebyscore', ledger, 2 ^ 31, now - 3600000, 'limit', 0, 100)
    if old[1] then
        redis.pcall('zrem', ledger, unpack(old))
    end
end
if is_known or remembers then
    local is_needed = value or redis.call('zcount', ledger, 1, 2 ^ 31 - 1) > 0
    if not is_needed then
        redis.call('pexpire', ledger, 3600000)
    elseif value and not is_whole then
        -- It may have got a TTL when there was no number. Only a permission can be missing.
        local left = redis.pcall('pttl', permits)
        if type(left) == 'number' and left > 0 then
            redis.pcall('pexpire', ledger, string.format('%.0f', left + 3600000))
        else
            redis.pcall('persist', ledger)
        end
    end
end
if not is_known then
    return nil
end
if value then
    free = redis.pcall('incrby', permits, string.format('%.0f', has - keeps))
    if type(free) == 'table' then
        -- The user may not: the share stays, so that the permits are not lost.
        redis.call('zadd', ledger, string.format('%.0f', has), request)
        return free
    end
    if free > 0 then
        redis.pcall(ARGV[4], ARGV[3], string.format('%.0f', free))
    end
end
return 1

-- Purpose: lowers how many permits one request has; also after an acquire whose outcome is unknown.
--
-- KEYS[1]  the free permits, a number
-- KEYS[2]  the ledger: request -> how many permits it has, or when it ended; '' if the ledger is complete
-- ARGV[1]  the request
-- ARGV[2]  how many permits it keeps; at 0 it ends
-- ARGV[3]  the channel of the semaphore's messages
-- ARGV[4]  the command that publishes there: publish, or spublish on a cluster that supports it
-- ARGV[5]  1: a command of this request may arrive later, so its end stays in the ledger for an hour; else 0
-- ARGV[6]  how many permits the request certainly has, as its client knows; 0: the client does not know
--
-- Returns
--   1     the request had more permits, and they are released; or it already has as many as it keeps, or fewer
--   nil   the request is not in the ledger: it has ended, or another client released its permits
--   error WRONGTYPE: the free permits are not a number below 2^53; nothing was done
--
-- A ledger without its member '' was lost (deleted, evicted): then the script uses the client's number, once. A
-- complete ledger contains every request that has permits. The script does not create the semaphore again. ZREM comes
-- first, because a server out of memory lets a script continue that has already written. If there is no number and no
-- request has permits, the ledger expires after an hour.
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
    -- Deletes some old ends. An error must not stop the script, because the permits are not released yet.
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
        -- The ledger may have got a TTL while there was no number. These commands fail only without a permission.
        local left = redis.pcall('pttl', permits)
        if type(left) == 'number' and left >= 0 then
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
        -- The user has no permission for INCRBY: keep the share, so that the permits are not lost.
        redis.call('zadd', ledger, string.format('%.0f', has), request)
        return free
    end
    if free > 0 then
        redis.pcall(ARGV[4], ARGV[3], string.format('%.0f', free))
    end
end
return 1

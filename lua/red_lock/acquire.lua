-- Purpose: one member's part of a quorum: takes the lock by lua/lock/acquire.lua, which is the function
-- `plain` here, unless this server may have lost its data. Returns the largest fencing token that the server
-- has seen.
--
-- KEYS[1]  the lock's hash
-- KEYS[n]  the register of the lock's fencing tokens, "<token> <written, ms> <field>"; only if ARGV[5] is 1
-- KEYS[n]  the server's epoch, a hash { id, since }; only if ARGV[4] is above 0, and then the last
-- ARGV[1]  the hold's field, "<client uuid>:<task>.<hold number>"
-- ARGV[2]  the target count of the hold; 1 for a first acquire
-- ARGV[3]  the lease in milliseconds
-- ARGV[4]  for how many milliseconds after a loss of its data the server grants nothing; 0: no check
-- ARGV[5]  1 to read the register
-- ARGV[6]  when the data may have been lost, as far as the client knows: by this server's clock, in
--          milliseconds; 0 if never
--
-- Returns { what, milliseconds, time, fresh, token }
--   what          1   granted: the count is the target or above, the TTL is the lease or longer
--                 0   another hold has the lock, with the TTL in milliseconds (-1: it has none)
--                 -3  the target is above 1 and the field is gone: the hold was lost
--                 -4  the server may have lost its data: it grants nothing for this many milliseconds
--   time          the server's clock in microseconds, as text; nil if ARGV[4] and ARGV[5] do not need it
--   fresh         1 if the server may have lost its data and no token was written since: the register's token
--                 may be too small
--   token         the register's token, as text; nil if there is none
--
-- If the epoch is absent or names another server, the script writes it, and the quarantine begins. `since`
-- is the server's clock at that time, in milliseconds; 0 if lua/red_lock/provision.lua marked the data as complete.
-- Numbers are exact up to 2^53, and TIME in microseconds is below that until the year 2255.
-- Idempotent: the target is absolute, and a TTL only grows.
-- Example: free, target 1, lease 30000, period 0, register "7 1700000000000 c:t1.1", register read
--   -> { field = 1 }, TTL 30000, { 1, 0, "1700000000000000", 0, "7" }.

local period, is_fenced = tonumber(ARGV[4]), ARGV[5] == '1'
local time, now, since = false, 0, 0

local function text(number)
    -- tostring would write 1.7e+15.
    return string.format('%.0f', number)
end

if period > 0 or is_fenced then
    local clock = redis.call('time')
    time = text(clock[1] * 1000000 + clock[2])
    now = clock[1] * 1000 + math.floor(clock[2] / 1000)
end

if period > 0 then
    local epoch = KEYS[#KEYS]
    local run = string.match(redis.call('info', 'server'), 'run_id:(%w+)') or ''
    local data = string.match(redis.call('info', 'replication'), 'master_replid:(%w+)') or ''
    local id = run .. ':' .. data
    local known = redis.call('hmget', epoch, 'id', 'since')
    since = tonumber(known[2] or nil)
    -- If the clock was set back, the quarantine restarts. It would otherwise last longer by that difference.
    if known[1] ~= id or not since or since > now then
        since = now
        redis.call('hset', epoch, 'id', id, 'since', text(since))
    end
    if now - since < period then
        return { -4, period - (now - since), time, 1, false }
    end
end

since = math.max(since, tonumber(ARGV[6]))
local token, is_fresh = false, since > 0
if is_fenced then
    local register = redis.call('get', KEYS[2])
    if register then
        local written
        token, written = string.match(register, '^(%d+) (%d+) ')
        if not token then
            return redis.error_reply('WRONGTYPE the register of the fencing tokens is not ours')
        end
        is_fresh = tonumber(written) <= since
    end
end

local function answer(what, milliseconds)
    return { what, milliseconds, time, is_fresh and 1 or 0, token }
end

local reply = plain()
if type(reply) == 'table' then
    -- The server refused a TTL, and nothing was done.
    return reply
end
if not reply then
    return answer(1, 0)
end
if reply == -3 then
    return answer(-3, 0)
end
return answer(0, reply)

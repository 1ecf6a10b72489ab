-- Purpose: releases all permits of a semaphore that the requests of one client have.
--
-- KEYS[1]  the free permits, a number
-- KEYS[2]  the ledger: request -> how many permits it has, or when it ended; '' if the ledger is complete
-- ARGV[1]  the prefix of the client's requests
-- ARGV[2]  the channel of the semaphore's messages
-- ARGV[3]  the command that publishes there: publish, or spublish on a cluster that supports it
--
-- Returns how many permits were released
--   error WRONGTYPE: the free permits are not a number below 2^53; nothing was done
--
-- A later release by that client releases nothing, however late it arrives. If the ledger is complete, the script
-- deletes the requests from it, because a release of an unknown request then has no effect. If it is not, a release
-- would use the client's number. So each request gets a score above every time, which lasts as long as the ledger. If
-- the user has no permission for a command, everything stays as it was.
-- Example: 1 free, { u:1.1 = 2, v:1.1 = 1 }, client u: -> 3 free, { v:1.1 = 1 }, message "3", 2.

local value = redis.call('get', KEYS[1]) or nil
local text = value or '0'
local free = (text == '0' or string.match(text, '^-?[1-9]%d*$')) and tonumber(text)
if not free or math.abs(free) >= 2 ^ 53 then
    return redis.error_reply('WRONGTYPE the free permits are no number below 2^53')
end
local is_whole = redis.call('zscore', KEYS[2], '')
local found = redis.call('zrangebyscore', KEYS[2], 1, 2 ^ 31 - 1, 'withscores')
local given, taken = 0, {}
for i = 1, #found, 2 do
    if string.sub(found[i], 1, #ARGV[1]) == ARGV[1] then
        local ended = not is_whole and redis.pcall('zadd', KEYS[2], '4503599627370496', found[i])
        if is_whole then
            redis.call('zrem', KEYS[2], found[i])
        elseif type(ended) == 'table' then
            if not string.find(ended.err, 'OOM', 1, true) then
                return ended
            end
            -- ZREM comes first, because a server out of memory lets a script continue that has already written.
            redis.call('zrem', KEYS[2], found[i])
            redis.call('zadd', KEYS[2], '4503599627370496', found[i])
        end
        given = given + found[i + 1]
        taken[#taken + 1] = i
    end
end
if given > 0 then
    if not value and redis.call('zcount', KEYS[2], 1, 2 ^ 31 - 1) == 0 then
        redis.call('pexpire', KEYS[2], 3600000)
    elseif value and not is_whole then
        -- The ledger may have got a TTL while there was no number. These commands fail only without a permission.
        local left = redis.pcall('pttl', KEYS[1])
        if type(left) == 'number' and left >= 0 then
            redis.pcall('pexpire', KEYS[2], string.format('%.0f', left + 3600000))
        else
            redis.pcall('persist', KEYS[2])
        end
    end
    if value then
        free = redis.pcall('incrby', KEYS[1], string.format('%.0f', given))
        if type(free) == 'table' then
            for _, i in ipairs(taken) do
                redis.call('zadd', KEYS[2], found[i + 1], found[i])
            end
            return free
        end
        if free > 0 then
            redis.pcall(ARGV[3], ARGV[2], string.format('%.0f', free))
        end
    end
end
return given

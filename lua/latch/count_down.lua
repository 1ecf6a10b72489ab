-- Purpose: counts a latch down by one, once for each request.
--
-- KEYS[1]  the count, a number; Redisson's key
-- KEYS[2]  the mark of the request, a string of lockdog's own
-- ARGV[1]  how long the mark is kept, in milliseconds: longer than the request may be repeated
-- ARGV[2]  the channel of the latch's messages
-- ARGV[3]  the command that publishes there: publish, or spublish on a cluster that supports it
--
-- Returns
--   1  counted, now or by an earlier run of the same request
--   0  there was no count, now or at that earlier run; nothing was done
--   error WRONGTYPE: the count is not a number below 2^53; nothing was done
--
-- At a count of zero or less the script deletes the key, which opens the latch. At zero it publishes the message 0.
-- Example: count 1 -> no key, message "0", 1; once more -> 1; another request -> 0.

local value = redis.call('get', KEYS[1]) or nil
local text = value or '0'
local count = (text == '0' or string.match(text, '^-?[1-9]%d*$')) and tonumber(text)
if not count or math.abs(count) >= 2 ^ 53 then
    return redis.error_reply('WRONGTYPE the count is no number below 2^53')
end
local was = redis.call('get', KEYS[2])
if was then
    return was == '1' and 1 or 0
end
-- There is nothing to delete. DEL comes first, because a server out of memory lets a script continue that has
-- already written.
redis.call('del', KEYS[2])
redis.call('set', KEYS[2], value and '1' or '0', 'px', ARGV[1])
if not value then
    return 0
end
count = redis.pcall('decrby', KEYS[1], 1)
if type(count) == 'table' then
    -- The user has no permission for DECRBY: delete the mark, because the request did not count.
    redis.call('del', KEYS[2])
    return count
end
if count <= 0 then
    redis.call('del', KEYS[1])
end
if count == 0 then
    redis.pcall(ARGV[3], ARGV[2], '0')
end
return 1

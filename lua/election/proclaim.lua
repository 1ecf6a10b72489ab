-- Purpose: publishes the value of a leader to all clients that query or observe the election.
--
-- KEYS[1]  the lock's hash
-- KEYS[2]  the leader's value, "field term number value"; its name is also the channel of its changes
-- KEYS[3]  the counter of the terms: the last one, in decimal
-- ARGV[1]  the field of the leader's hold
-- ARGV[2]  its term
-- ARGV[3]  the number of this proclamation; the proclamations of one leadership are counted from 1
-- ARGV[4]  the value
-- ARGV[5]  the command that publishes: publish, or spublish on a cluster that supports it
--
-- Returns
--   1  published, or this leader published a newer value before; observers are notified
--   0  the field is not in the hash: it does not lead
--   error  LATERTERM: the counter is above the term; nothing was done
--
-- A repeated or late run does no harm. The number shows which proclamation of a leader is the newest. A late copy of
-- the acquire can make an ended hold again, which has a later term, so the script does not show the ended term again.
-- If the counter was deleted since, the script cannot distinguish the terms. Another program may have raised the
-- counter, so this is no sign that the hold was lost.
-- The value has the TTL of the hash, so it expires if the leader's process dies.
-- Example: { a = 1 } for 30000, field "a", term 17, number 1, "me" -> "a 17 1 me" for 30000, message "17", 1.

local field, value_key = ARGV[1], KEYS[2]

if redis.call('hexists', KEYS[1], field) == 0 then
    return 0
end
local last = redis.pcall('get', KEYS[3])
last = type(last) == 'string' and string.match(last, '^%d+$') and tonumber(last)
if last and last < 2 ^ 53 - 1 and last > tonumber(ARGV[2]) then
    return redis.error_reply('LATERTERM the counter of the terms is above the term of this leader')
end
local before = redis.pcall('get', value_key)
if type(before) == 'string' then
    local by, number = string.match(before, '^(%S+) %d+ (%d+) ')
    if by == field and tonumber(number) > tonumber(ARGV[3]) then
        return 1
    end
end
local text = table.concat({ field, ARGV[2], ARGV[3], ARGV[4] }, ' ')
local left = redis.call('pttl', KEYS[1])
if left >= 0 then
    redis.call('set', value_key, text, 'px', math.max(left, 1))
else
    redis.call('set', value_key, text)
end
redis.pcall(ARGV[5], value_key, ARGV[2])
return 1

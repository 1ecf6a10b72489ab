-- Purpose: ends one leadership and begins the next one of the same client, with a new term. It runs
-- lua/fair/transfer.lua, which is the function `fair` here.
--
-- KEYS[1]    the lock's hash
-- KEYS[2..4] the queue, the places and the presence: see lua/fair/transfer.lua
-- KEYS[5]    the leader's value, "field term number value"; its name is also the channel of its changes
-- KEYS[6]    the counter of the terms: the last one, in decimal; the counter of a fenced lock
-- ARGV[1..]  as lua/fair/transfer.lua; ARGV[1] is the field that ends, ARGV[2] the one that begins
--
-- Returns
--   { -1, term }  handed over, with this term as text; the script does not count the listeners
--   { -3, term }  as { -1, term }, but the first hold was not there: an earlier run ended it, or it was lost
--   -2            the first hold ended, and another waiter is first, which was notified; or no waiter is
--                 present; or the second hold could not begin, for example because the counter is not a number
--   nil           neither hold is there: the first one was lost
--   error         WRONGTYPE: the second hold is there, and the counter is not a number below 2^53 - 1
--
-- Idempotent. The script writes nothing before `fair`, which begins with HDEL, because a server out of
-- memory lets a script continue that has already written.
-- Example: { a = 1 }, queue { b }, counter 7, from a to b -> { b = 1 }, counter "17...", { -1, "17..." }.

local key, value_key, counter = KEYS[1], KEYS[5], KEYS[6]
local to = ARGV[2]

local function text(number)
    -- tostring would write 1.7e+15.
    return string.format('%.0f', number)
end

local value = redis.pcall('get', counter)
local last = 0
if value then
    last = type(value) == 'string' and string.match(value, '^%d+$') and tonumber(value)
end
if last and last >= 2 ^ 53 - 1 then
    last = false
end

local was_held = redis.call('hexists', key, to) == 1
if not last then
    if was_held then
        return redis.error_reply('WRONGTYPE the counter of the terms is no number below 2^53 - 1')
    end
    -- The script cannot compute a term. `fair` ends the first hold and notifies the first waiter, because no
    -- waiter has the empty field.
    ARGV[2] = ''
end

-- Deletes the value of a leader that has no hold any more: the first leader's, or an earlier leader's if the first
-- one published none. If another hold begins at the same time, it publishes a new value, or its end deletes this one.
local function delete_value()
    local text = redis.pcall('get', value_key)
    local by = type(text) == 'string' and string.match(text, '^(%S+) ')
    if by and redis.pcall('hexists', key, by) ~= 1 then
        redis.pcall('del', value_key)
        redis.pcall(ARGV[5], value_key, '')
    end
    return -2
end

local answer = fair()
if answer == -2 then
    return delete_value()
end
if answer ~= -1 and answer ~= -3 then
    return answer
end
if was_held and last > 0 then
    return { answer, text(last) }
end
-- The term is new, or the counter was deleted during the second leadership.
local clock = redis.pcall('time')
local term = not clock.err and text(math.max(last + 1, clock[1] * 1000000 + clock[2]))
-- The counter has no TTL, because a counter that expires would restart.
local stored = term and redis.pcall('set', counter, term)
if not stored or stored.err then
    if was_held then
        return clock.err and clock or stored
    end
    redis.pcall('hdel', key, to)
    return delete_value()
end
return { answer, term }

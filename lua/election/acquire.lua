-- Purpose: one query of an election. It runs lua/fair/acquire.lua, which is the function `fair` here. A grant
-- begins a term, whose number is a fencing token like that of lua/fenced/acquire.lua.
--
-- KEYS[1]    the lock's hash
-- KEYS[2..4] the queue, the places and the presence: see lua/fair/acquire.lua
-- KEYS[5]    the leader's value; not used here
-- KEYS[6]    the counter of the terms: the last one, in decimal; the counter of a fenced lock
-- ARGV[1..]  as lua/fair/acquire.lua
--
-- Returns
--   term       granted, as text: the count is the target or above, the TTL is the lease or longer
--   otherwise  what lua/fair/acquire.lua returns if it grants nothing
--   error      WRONGTYPE: the counter is not a number below 2^53 - 1; nothing was done
--
-- Idempotent: while the field is there, no other grant changes the counter, so the counter has the term of
-- the hold.
-- Example: free, queue empty, counter 7, clock in 2026 -> { field = 1 }, counter "17...", "17...".

local key, field, counter = KEYS[1], ARGV[1], KEYS[6]

local function text(number)
    -- tostring would write 1.7e+15.
    return string.format('%.0f', number)
end

local function is_error(reply)
    return type(reply) == 'table' and reply.err
end

-- The counter is read before the query, so that an invalid counter leaves the queue unchanged.
local value = redis.pcall('get', counter)
if is_error(value) and not string.find(value.err, 'WRONGTYPE', 1, true) then
    return value
end
local last = 0
if value then
    last = type(value) == 'string' and string.match(value, '^%d+$') and tonumber(value)
end
if not last or last >= 2 ^ 53 - 1 then
    return redis.error_reply('WRONGTYPE the counter of the terms is no number below 2^53 - 1')
end

local was_held = redis.call('hexists', key, field) == 1
local answer = fair()
if answer then
    return answer
end
if was_held and last > 0 then
    return text(last)
end
-- The term is new, or the counter was deleted during it.
local clock = redis.pcall('time')
local term = not is_error(clock) and text(math.max(last + 1, clock[1] * 1000000 + clock[2]))
-- The counter has no TTL, because a counter that expires would restart.
local stored = term and redis.pcall('set', counter, term) or clock
if is_error(stored) and not was_held then
    -- A leader must have a term: undo the grant. The call fails, and its place in the queue is lost.
    redis.call('hdel', key, field)
    return stored
end
return term or clock

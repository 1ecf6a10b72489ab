-- Purpose: acquires for a waiting client, as acquire.lua does, and lists the client if it has to wait, so that an
-- unlock wakes this client instead of all clients.
--
-- KEYS[1..]    those of acquire.lua
-- ARGV[1..]    those of acquire.lua, and then:
-- ARGV[n - 3]  the list of the waiting clients: a sorted set, client -> since when it has waited, in microseconds
-- ARGV[n - 2]  the client
-- ARGV[n - 1]  how long it has waited, in microseconds
-- ARGV[n]      1: the client leaves a free lock to the clients that wait; 0: it does not
--
-- Returns
--   the answer of acquire.lua
--   -4  the lock is free and was left to others; the client is listed
--   {n} as n, but the server does not allow the script to list the client
--
-- The list decides only which client is woken, so all that concerns it may fail: a server without memory, or a user
-- without access to the key. It is no key of KEYS, because then the server would refuse the whole script to such a
-- user. It has the hash tag of the lock.
-- The function `acquire` is the other file. Idempotent, because that file is, and a listed client is listed once.
-- Example: held by another for 5 s, client "c", waited 2 s -> { c = now - 2 s }, 5000.

local n = #ARGV
local list, client = ARGV[n - 3], ARGV[n - 2]
local args = {}
for i = 1, n - 4 do
    args[i] = ARGV[i]
end

-- Whether the server refuses all writes for a time. A missing permission refuses a write for good. Redis 6 has more
-- text before the code, and the text of a missing permission has the user's name.
local function is_for_now(refusal)
    if refusal:find('NOPERM', 1, true) then
        return false
    end
    for _, code in ipairs({ 'OOM', 'READONLY', 'NOREPLICAS', 'MISCONF' }) do
        if refusal:find(code, 1, true) then
            return true
        end
    end
    return false
end

local answer = -4
if ARGV[n] ~= '1' or redis.call('exists', KEYS[1]) == 1 then
    answer = acquire(KEYS, args)
end

if answer == -4 or (type(answer) == 'number' and answer >= -1) then
    local clock = redis.call('time')
    local listed = redis.pcall('zadd', list, clock[1] * 1000000 + clock[2] - ARGV[n - 1], client)
    if type(listed) == 'table' then
        return is_for_now(listed.err) and answer or { answer }
    end
    -- Longer than the pause between two commands of a waiting client, so that only a list that no client uses expires.
    redis.pcall('pexpire', list, 60000)
else
    redis.pcall('zrem', list, client)
end
return answer

-- Purpose: raises the counts of several holds of one client to their targets, and takes the locks that
-- are free: all of them, or none.
--
-- KEYS[i]          the i-th lock's hash
-- ARGV[1]          the lease in milliseconds
-- ARGV[2 * i]      the field of the i-th hold, "<client uuid>:<task>.<hold number>"
-- ARGV[2 * i + 1]  the target count of the i-th hold; 1 for a first acquire
--
-- Returns
--   nil       granted: each count is its target or above, each TTL is the lease or longer
--   { i, n }  nothing was done. n >= -1: another hold has the i-th lock, and its TTL is n
--             milliseconds (-1: it has none); -3: its target is above 1 and its field is gone
--   an error  nothing was done; " KEYS[i]" at its end names the key that it is about
--
-- Idempotent: targets are absolute, and a TTL only grows.
-- Example: "a" free, "b" held by another for 5 s -> { 2, 5000 }, "a" still free.

local lease = tonumber(ARGV[1])
local missing, left = {}, {}

local function refuse(i, refusal)
    refusal.err = refusal.err .. ' KEYS[' .. i .. ']'
    return refusal
end

for i, key in ipairs(KEYS) do
    local count = redis.pcall('hget', key, ARGV[2 * i])
    if type(count) == 'table' then
        return refuse(i, count)
    end
    local target = tonumber(ARGV[2 * i + 1])
    left[i] = redis.call('pttl', key)
    count = tonumber(count or nil)
    if not count then
        if target > 1 then
            return { i, -3 }
        elseif left[i] ~= -2 then
            return { i, left[i] }
        end
    end
    missing[i] = target - (count or 0)
end

for i, key in ipairs(KEYS) do
    local raised = missing[i] > 0 and redis.pcall('hincrby', key, ARGV[2 * i], missing[i])
    local refusal = type(raised) == 'table' and raised
    if not refusal and left[i] < lease then
        local timed = redis.pcall('pexpire', key, lease)
        refusal = type(timed) == 'table' and timed
    end
    if refusal then
        -- A refused acquire has no effect, and a lock without a TTL would outlive its holder: undo all
        -- grants. A longer TTL of a hold that was there before does no harm.
        for j = 1, type(raised) == 'table' and i - 1 or i do
            if left[j] == -2 then
                redis.pcall('hdel', KEYS[j], ARGV[2 * j])
            elseif missing[j] > 0 then
                redis.pcall('hincrby', KEYS[j], ARGV[2 * j], -missing[j])
            end
        end
        return refuse(i, refusal)
    end
end
return nil

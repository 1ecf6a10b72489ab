-- Purpose: extends the leases of several holds of values of groups; a failure of one does not affect the others.
--
-- KEYS[n]      the hash of a group: see lua/group/acquire.lua
-- ARGV[3n-2]   the hold's field
-- ARGV[3n-1]   its lease in milliseconds
-- ARGV[3n]     the hashes of its values, separated by single spaces
--
-- Returns a list, one element for each hold:
--   1   the hold has all of its values, for the lease or longer. Their times end 5 ms after the key: see
--       lua/group/acquire.lua
--   0   the hold does not have all of them: it was lost
--   -1  the server could not check it, for example because the key has another type
--
-- Idempotent: times only grow. HDEL of a field that cannot exist comes first, because a server out of memory
-- lets a script continue that has already written.
-- Example: { x = a, x:a:expire_time = now + 100, .. }, field a, lease 30000 -> x:a:expire_time = now + 30005, 1.

local clock = redis.call('time')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

local function extend(key, field, lease, values)
    redis.call('hdel', key, '')
    for value in string.gmatch(values, '%S+') do
        if redis.call('hget', key, value) ~= field then
            return 0
        end
    end
    local value_end = now + lease + 5
    for value in string.gmatch(values, '%S+') do
        local ends = value .. ':' .. field .. ':expire_time'
        local before = tonumber(redis.call('hget', key, ends) or nil) or 0
        if before < value_end then
            redis.call('hset', key, ends, string.format('%.0f', value_end))
        end
    end
    if redis.call('pttl', key) < lease then
        redis.call('pexpire', key, lease)
    end
    return 1
end

local answers = {}
for i, key in ipairs(KEYS) do
    local succeeded, answer = pcall(extend, key, ARGV[3 * i - 2], tonumber(ARGV[3 * i - 1]), ARGV[3 * i])
    answers[i] = succeeded and answer or -1
end
return answers

-- Purpose: reads who has some of these values of a group. It changes nothing.
--
-- KEYS[1]    the group's hash: see lua/group/acquire.lua
-- ARGV[1..]  the hashes of the values
--
-- Returns three elements for each value that has an owner whose lease has not ended: the owner's field, its
-- count, and the milliseconds until its lease ends. A value ends with the key at the latest, which ends before the
-- time of its last values: see lua/group/acquire.lua.
--
-- Example: { x = a, x:a:lock_count = 2, x:a:expire_time = now + 700 }, values x and y -> { "a", "2", 700 }.

local clock = redis.call('time')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local key_left = redis.call('pttl', KEYS[1])
local found = {}
for _, value in ipairs(ARGV) do
    local holder = redis.call('hget', KEYS[1], value)
    local prefix = holder and value .. ':' .. holder
    local ends = holder and tonumber(redis.call('hget', KEYS[1], prefix .. ':expire_time') or nil)
    if ends and ends > now then
        found[#found + 1] = holder
        found[#found + 1] = redis.call('hget', KEYS[1], prefix .. ':lock_count') or '0'
        found[#found + 1] = key_left < 0 and ends - now or math.min(ends - now, key_left)
    end
end
return found

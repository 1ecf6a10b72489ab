-- Purpose: frees an election from the given leader of any client, and never from a later one. It runs
-- lua/fair/force_unlock.lua, which is the function `fair` here, and deletes the leader's value.
--
-- KEYS[1]    the lock's hash
-- KEYS[2..4] the queue, the places and the presence: see lua/fair/force_unlock.lua
-- KEYS[5]    the leader's value, "field term number value"; its name is also the channel of its changes
-- ARGV[1..]  as lua/fair/force_unlock.lua; ARGV[1] is the field, ARGV[3] the command that publishes
--
-- Returns what lua/fair/force_unlock.lua returns.
--
-- Example: { a = 1 }, value "a 17... 1 me", field "a" -> no hash, no value, message "" on the channel, 1.

local value_key = KEYS[5]

local answer = fair()
if answer == 1 then
    local text = redis.pcall('get', value_key)
    local by = type(text) == 'string' and string.match(text, '^(%S+) ')
    if by and redis.pcall('hexists', KEYS[1], by) ~= 1 then
        redis.pcall('del', value_key)
        redis.pcall(ARGV[3], value_key, '')
    end
end
return answer

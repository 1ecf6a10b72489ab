-- Purpose: lowers the count of one hold of an election to a target. It runs lua/fair/unlock.lua, which is the
-- function `fair` here. At zero it deletes the leader's value, or an earlier leader's value if this leader
-- published none. It also settles a campaign whose outcome is unknown.
--
-- KEYS[1]    the lock's hash
-- KEYS[2..4] the queue, the places and the presence: see lua/fair/unlock.lua
-- KEYS[5]    the leader's value, "field term number value"; its name is also the channel of its changes
-- ARGV[1..]  as lua/fair/unlock.lua; ARGV[1] is the field, ARGV[2] the target, ARGV[4] the command that publishes
--
-- Returns what lua/fair/unlock.lua returns.
--
-- Idempotent.
-- Example: { a = 1 }, value "a 17... 1 me", target 0 -> no hash, no value, message "" on the channel, 1.

local value_key = KEYS[5]

local answer = fair()
if answer == 1 then
    -- The hold has ended, so an error on this key must not be returned as a failed unlock.
    local text = redis.pcall('get', value_key)
    local by = type(text) == 'string' and string.match(text, '^(%S+) ')
    if by and redis.pcall('hexists', KEYS[1], by) ~= 1 then
        redis.pcall('del', value_key)
        redis.pcall(ARGV[4], value_key, '')
    end
end
return answer

-- Purpose: lowers the count of one hold of an election to a target, as lua/fair/unlock.lua, which is the
-- function `fair` here. At zero, it deletes the leader's value, and that of the leader before it,
-- if this one published none. Settles a campaign too.
--
-- KEYS[1]    the lock's hash
-- KEYS[2..4] the queue, the places and the presence: see lua/fair/unlock.lua
-- KEYS[5]    the leader's value, "field term number value"; its name is the channel of the news
-- ARGV[1..]  as lua/fair/unlock.lua; ARGV[1] is the field, ARGV[2] the target, ARGV[4] publishes
--
-- Returns what lua/fair/unlock.lua returns.
--
-- Run twice it does what it does once.
-- Example: { a = 1 }, value "a 17... 1 me", target 0 -> no hash, no value, message "" on the channel, 1.

local said = KEYS[5]

local answer = fair()
if answer == 1 then
    -- The hold has ended: what is wrong with this key must not look like an unlock that failed.
    local text = redis.pcall('get', said)
    local by = type(text) == 'string' and string.match(text, '^(%S+) ')
    if by and redis.pcall('hexists', KEYS[1], by) ~= 1 then
        redis.pcall('del', said)
        redis.pcall(ARGV[4], said, '')
    end
end
return answer

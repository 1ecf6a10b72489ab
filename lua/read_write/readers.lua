-- Purpose: reads who holds the read lock. It changes nothing.
--
-- KEYS[1]  the lock's hash
-- ARGV[1]  the prefix of the timeout keys: their names up to the field
--
-- Returns two elements for each reader whose lease has not ended: its field and its count. The field of another
-- reader stays in the hash for as long as any client renews it.
--
-- Example: { mode = read, a = 2, b = 1 }, b without a timeout key -> { "a", "2" }.

local found = {}
if redis.call('hexists', KEYS[1], 'mode') == 0 then
    return found
end
local fields = redis.call('hgetall', KEYS[1])
for i = 1, #fields, 2 do
    local field, count = fields[i], fields[i + 1]
    if tonumber(count) and not field:find(':write$') then
        -- A timeout key that the script cannot read counts as a living hold: see lua/read_write/acquire.lua.
        local timeout, alive = ARGV[1] .. field .. ':rwlock_timeout:', false
        for n = math.min(tonumber(count), 1000), 1, -1 do
            local left = redis.pcall('pttl', timeout .. n)
            alive = type(left) ~= 'number' or left > 0 or left == -1
            if alive then
                break
            end
        end
        if alive or type(redis.pcall('exists', KEYS[1], timeout .. '1')) ~= 'number' then
            found[#found + 1] = field
            found[#found + 1] = count
        end
    end
end
return found

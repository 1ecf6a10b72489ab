-- Purpose: extends the leases of up to 100 leaderships and the TTLs of their leaders' values; a failure of one
-- does not affect the others.
--
-- KEYS[2 * i - 1]  the lock's hash of the i-th hold
-- KEYS[2 * i]      its leader's value, "field term number value"
-- ARGV[2 * i - 1]  the field of the i-th hold
-- ARGV[2 * i]      its lease in milliseconds
--
-- Returns a list, one element for each hold:
--   1   the field is there and the TTL of the hash is the lease or longer
--   0   the field is not there: the hold was lost
--   -1  the server could not check it or could not extend it (another type under the key, no
--       permission): the state is unknown
--
-- The value of this leader gets the TTL of the hash, so it does not outlive the lock. The script does not
-- extend the value of another leader. A failure on the value does not end the leadership.
-- Example: KEYS = { "a", "lockdog_leader:{a}" }, f is there and published "f 17 1 me" -> { 1 }, both TTLs 30000.

local answers = {}

for i = 1, #KEYS / 2 do
    local key, value_key, field, lease = KEYS[2 * i - 1], KEYS[2 * i], ARGV[2 * i - 1], ARGV[2 * i]
    local held = redis.pcall('hexists', key, field)
    if held == 1 then
        local left = redis.pcall('pttl', key)
        if type(left) == 'number' and left < tonumber(lease) then
            left = redis.pcall('pexpire', key, lease)
        end
        if type(left) == 'table' then
            held = -1
        else
            local text = redis.pcall('get', value_key)
            if type(text) == 'string' and string.sub(text, 1, #field + 1) == field .. ' ' then
                redis.pcall('pexpire', value_key, redis.call('pttl', key))
            end
        end
    elseif held ~= 0 then
        held = -1
    end
    answers[i] = held
end

return answers

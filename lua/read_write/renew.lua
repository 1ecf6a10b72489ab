-- Purpose: extends the leases of up to 100 read holds; a failure of one does not affect the others.
--
-- KEYS[2 * i - 1]  the lock's hash of the i-th hold
-- KEYS[2 * i]      its own timeout key
-- ARGV[2 * i - 1]  the field of the i-th hold
-- ARGV[2 * i]      its lease in milliseconds
--
-- Returns a list, one element for each hold:
--   1   the field is there, and both TTLs are the lease or longer
--   0   the field is not there: the hold was lost
--   -1  the server could not check it or could not extend it (another type under the key, no
--       permission): the state is unknown
--
-- If the timeout key is gone, the script writes it again, because the client decides how long the lease is. PEXPIRE
-- comes before SET, because a server out of memory lets a script continue that has already written.
-- Example: KEYS = { "a", "{a}:f:rwlock_timeout:1" }, f is there -> { 1 }, both TTLs 30000.

local answers = {}

for i = 1, #KEYS / 2 do
    local key, own, lease = KEYS[2 * i - 1], KEYS[2 * i], ARGV[2 * i]
    local held = redis.pcall('hexists', key, ARGV[2 * i - 1])
    if held == 1 then
        local rest = redis.pcall('pttl', own)
        local done = type(rest) == 'number'
            and redis.pcall('pexpire', own, string.format('%d', math.max(rest, tonumber(lease))))
        if done == 0 then
            done = redis.pcall('set', own, 1, 'px', lease)
        end
        local left = redis.pcall('pttl', key)
        if type(left) == 'number' and left < tonumber(lease) then
            left = redis.pcall('pexpire', key, lease)
        end
        if type(left) == 'table' or not done or (type(done) == 'table' and done.err) then
            held = -1
        end
    elseif held ~= 0 then
        held = -1
    end
    answers[i] = held
end

return answers

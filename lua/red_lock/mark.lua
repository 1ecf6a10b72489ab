-- Purpose: one member's part of a fencing token: writes the token while its holder has the lock, if it
-- is larger than every earlier token.
--
-- KEYS[1]  the lock's hash
-- KEYS[2]  the register of the lock's fencing tokens, "<token> <written, ms> <field>"
-- ARGV[1]  the hold's field
-- ARGV[2]  the token, at most 2^53
-- ARGV[3]  the lease in milliseconds
-- ARGV[4]  how long the register is kept, in milliseconds
--
-- Returns
--   1      the register has the token, written for this field; the TTL of the lock is the lease or longer
--   0      the field is not there: the hold was lost; nothing was done
--   token  the register has this token of another hold, as text, which is not smaller; nothing was done
--
-- Idempotent: a second run finds what the first one wrote, and a field is never used again. The register
-- outlives the lock, whose hash is deleted by each unlock.
-- Example: { field = 1 }, register "7 .. other", token 9 -> register "9 .. field", 1; token 8 -> "9".

local key, register, field, token, lease = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3]

if redis.call('hexists', key, field) == 0 then
    return 0
end

local largest, holder
local known = redis.call('get', register)
if known then
    largest, holder = string.match(known, '^(%d+) %d+ (.*)$')
    if not largest then
        return redis.error_reply('WRONGTYPE the register of the fencing tokens is not ours')
    end
end

if not largest or tonumber(largest) < tonumber(token) then
    local clock = redis.call('time')
    local now = string.format('%.0f', clock[1] * 1000 + math.floor(clock[2] / 1000))
    redis.call('set', register, token .. ' ' .. now .. ' ' .. field, 'px', ARGV[4])
elseif largest ~= token or holder ~= field then
    return largest
end

if redis.call('pttl', key) < tonumber(lease) then
    redis.call('pexpire', key, lease)
end
return 1

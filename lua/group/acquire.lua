-- Purpose: raises the count of one hold of several values of a group to a target, and takes all of the
-- values if all of them are free.
--
-- KEYS[1]    the group's hash. For a value with the hash h: h -> owner, h:owner:expire_time -> when its lease
--            ends, in ms, h:owner:lock_count -> the count. Redisson's fields
-- ARGV[1]    the hold's field, "<client uuid>:<task>.<hold number>": the owner of the values
-- ARGV[2]    the target count of the hold; 1 for a first acquire
-- ARGV[3]    the lease in milliseconds
-- ARGV[4..]  the hashes of the values
--
-- Returns
--   nil      granted: the hold has each value with the target count or above, for the lease or longer
--   n >= 0   another owner has some of the values; the longest of their leases ends in n milliseconds
--   -3       the target is above 1 and the hold does not have all of the values: it was lost
--   -6       the owner of the hold has some of the values by another hold
--
-- The time of a value ends 5 ms after the key. A Redisson client may take a value at the end of its time. If the key
-- has less than a millisecond left then, Redisson does not extend it, and loses the value at once.
--
-- A hash of a lock of another kind is refused with WRONGTYPE, and not changed.
--
-- Idempotent: the target is absolute, and times only grow. A value whose lease has ended is free, and a grant
-- deletes what its earlier owner left. A grant also checks a few other fields, and deletes those whose leases
-- ended minutes ago.
-- Example: { x = b, x:b:expire_time = now + 700, .. }, field a, values x and y -> 700, nothing is written.

local key, field, target, lease = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local clock = redis.call('time')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

-- Returns the owner of a hold: its field without the hold's number.
local function owner_of(hold)
    return string.match(hold, '^(.*%.)%d+$')
end

local function text(number)
    return string.format('%.0f', number)
end

local function is_error(reply)
    return type(reply) == 'table' and reply.err
end

local own, left, others = 0, -1, {}
for i = 4, #ARGV do
    local holder = redis.call('hget', key, ARGV[i])
    if holder == field then
        own = own + 1
    elseif holder then
        others[ARGV[i]] = holder
        local ends = tonumber(redis.call('hget', key, ARGV[i] .. ':' .. holder .. ':expire_time') or nil)
        if ends and ends > now then
            if owner_of(holder) and owner_of(holder) == owner_of(field) then
                return -6
            end
            left = math.max(left, ends - now)
        end
    end
end
if target > 1 and own < #ARGV - 3 then
    return -3
end
if left >= 0 then
    return left
end

-- The fields of a hold that no client released stay for as long as other clients use the group. The script samples
-- fields at random and deletes old ones below. A hold adds three fields for each value, and each sampled field leads
-- to three, so the old fields stay fewer than those in use. It deletes a field only minutes after its lease ended,
-- because the clock of a Redisson client may be behind. It samples before it writes, so that a refused command has no
-- effect.
local sample = redis.call('hrandfield', key, 2 * (#ARGV - 3) + 2)

-- A lock with one owner has one field, "<client uuid>:<id>". A value has three, and the first one has no colon. A
-- lock with readers or a writer has the field "mode".
local function is_of_another_kind()
    local only = #sample == 1 and sample[1]
    local is_part = only and (string.find(only, ':expire_time$') or string.find(only, ':lock_count$'))
    if only and not is_part and string.find(only, ':', 1, true) then
        return true
    end
    return redis.call('hexists', key, 'mode') == 1
end
if is_of_another_kind() then
    return redis.error_reply('WRONGTYPE the key is a lock of another kind')
end

-- A refused command has no effect: restores the earlier state.
local before = {}
local function undo()
    for i = 4, #ARGV do
        local names = { ARGV[i], ARGV[i] .. ':' .. field .. ':expire_time', ARGV[i] .. ':' .. field .. ':lock_count' }
        for at, name in ipairs(names) do
            local value = before[i] and before[i][at]
            if value then
                redis.pcall('hset', key, name, value)
            else
                redis.pcall('hdel', key, name)
            end
        end
    end
end

for i = 4, #ARGV do
    local value = ARGV[i]
    local ends, count = value .. ':' .. field .. ':expire_time', value .. ':' .. field .. ':lock_count'
    before[i] = redis.call('hmget', key, value, ends, count)
    local lease_end = math.max(tonumber(before[i][2] or nil) or 0, now + lease + 5)
    local counted = math.max(tonumber(before[i][3] or nil) or 0, target)
    redis.call('hset', key, value, field, ends, text(lease_end), count, text(counted))
    if others[value] then
        redis.call(
            'hdel',
            key,
            value .. ':' .. others[value] .. ':expire_time',
            value .. ':' .. others[value] .. ':lock_count'
        )
    end
end
if redis.call('pttl', key) < lease then
    local timed = redis.pcall('pexpire', key, ARGV[3])
    if is_error(timed) then
        undo()
        return timed
    end
end

for _, name in ipairs(sample) do
    local held = string.match(name, '^(.+):expire_time$') or string.match(name, '^(.+):lock_count$')
    if not held and not string.find(name, ':', 1, true) then
        held = name .. ':' .. (redis.call('hget', key, name) or '')
    end
    local ends = held and tonumber(redis.call('hget', key, held .. ':expire_time') or nil)
    if ends and ends + 300000 < now then
        local value, holder = string.match(held, '^([^:]+):(.*)$')
        if value and redis.call('hget', key, value) == holder then
            redis.call('hdel', key, value)
        end
        redis.call('hdel', key, held .. ':expire_time', held .. ':lock_count')
    end
end
return nil

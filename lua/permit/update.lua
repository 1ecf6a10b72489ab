-- Purpose: sets the leases of permits in use: of all of them, or of none.
--
-- KEYS[1]  the sorted set of the permits in use: id -> the server's time at which it expires, in ms
-- ARGV[1]  the lease in milliseconds from now; -1: the permits never expire
-- ARGV[2]  and all that follow: the ids of the permits
--
-- Returns
--   1  done
--   0  one of them is not in use, or its lease has ended; nothing was done
--
-- Example: { a = now + 10 }, lease 60000, id a -> { a = now + 60000 }, 1.

local clock = redis.call('time')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
for i = 2, #ARGV do
    local ends = tonumber(redis.call('zscore', KEYS[1], ARGV[i]) or nil)
    if not ends or ends <= now then
        return 0
    end
end
-- 922337203685477 is Redisson's value for a permit that never expires.
local ends = ARGV[1] == '-1' and '922337203685477' or string.format('%.0f', now + ARGV[1])
for i = 2, #ARGV do
    redis.call('zadd', KEYS[1], ends, ARGV[i])
end
return 1

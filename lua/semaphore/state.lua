-- Purpose: reads how many permits of a semaphore are free, and which requests have the others. It changes nothing.
--
-- KEYS[1]  the free permits, a number
-- KEYS[2]  the ledger: request -> how many permits it has, or when it ended
-- ARGV[1]  how many requests to return, at most
--
-- Returns { free, request, has, request, has, ... }
--   free  as text
--   has   how many permits the request has, as text
--   error WRONGTYPE: the free permits are not a number below 2^53
--
-- Example: 1 free, { u:1.1 = 2 } -> { "1", "u:1.1", "2" }.

local value = redis.call('get', KEYS[1]) or '0'
local free = (value == '0' or string.match(value, '^-?[1-9]%d*$')) and tonumber(value)
if not free or math.abs(free) >= 2 ^ 53 then
    return redis.error_reply('WRONGTYPE the free permits are no number below 2^53')
end
local answer = { value }
if ARGV[1] ~= '0' then
    local found = redis.call('zrangebyscore', KEYS[2], 1, 2 ^ 31 - 1, 'withscores', 'limit', 0, ARGV[1])
    for i = 1, #found do
        answer[#answer + 1] = found[i]
    end
end
return answer

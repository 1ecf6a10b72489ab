-- Purpose: hands the permits of one request on to another request of the same client, without a free moment.
--
-- KEYS[1]  the free permits, a number
-- KEYS[2]  the ledger: request -> how many permits it has, or when it ended; '' if it was not lost
-- ARGV[1]  the request that ends
-- ARGV[2]  the request that begins, which is used for nothing else before
-- ARGV[3]  how many permits the first one has and the second one asks for
-- ARGV[4]  1: a command of the first request may arrive later; its end is remembered for an hour. Else 0
-- ARGV[5]  the channel of the semaphore's messages
-- ARGV[6]  the command that publishes there: publish, or spublish on a cluster that knows it
--
-- Returns
--   n >= 0  handed on; n connections listen on the channel
--   -1      handed on; the number of listeners is unknown
--   -3      nothing was done: the ledger was lost, or has another number of permits for the first request, or
--           the second one has ended
--
-- The free permits stay as they are, and nothing is published. Idempotent: a request that has permits gets
-- none by this. ZREM comes first, because a server out of memory lets a script go on that has written.
-- Example: 1 free, { u:1.1 = 2 }, to u:1.2 -> 1 free, { u:1.2 = 2 }, 0; once more -> 0.

local ledger, from, to, channel = KEYS[2], ARGV[1], ARGV[2], ARGV[5]

local got = redis.call('zscore', ledger, to)
if got and tonumber(got) >= 2 ^ 31 then
    -- It has ended, and this command comes late.
    return -3
end
-- If the second request has permits, an earlier run has handed them on. A first request that has some all the
-- same got them by a late acquire: they are not the ones that were handed on.
if not got then
    local has = redis.call('zscore', ledger, from)
    local is_whole = redis.call('zscore', ledger, '') and redis.call('exists', KEYS[1]) == 1
    if not (is_whole and has and tonumber(has) == tonumber(ARGV[3])) then
        return -3
    end
    redis.call('zrem', ledger, from)
    redis.call('zadd', ledger, ARGV[3], to)
    if ARGV[4] == '1' then
        local clock = redis.call('time')
        local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
        redis.call('zadd', ledger, string.format('%.0f', now), from)
    end
end

local asked = ARGV[6] == 'spublish' and 'shardnumsub' or 'numsub'
local listening = redis.pcall('pubsub', asked, channel)
return listening[2] or -1

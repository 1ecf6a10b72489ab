-- Purpose: hands the permits of one request over to another request of the same client, without a free moment.
--
-- KEYS[1]  the free permits, a number
-- KEYS[2]  the ledger: request -> how many permits it has, or when it ended; '' if the ledger is complete
-- ARGV[1]  the request that ends
-- ARGV[2]  the request that begins, which no earlier command used
-- ARGV[3]  how many permits the first request has and the second one asks for
-- ARGV[4]  1: a command of the first request may arrive later, so its end stays in the ledger for an hour; else 0
-- ARGV[5]  the channel of the semaphore's messages
-- ARGV[6]  the command that publishes there: publish, or spublish on a cluster that supports it
--
-- Returns
--   n >= 0  handed over; n connections listen on the channel
--   -1      handed over; the number of listeners is unknown
--   -3      nothing was done: the ledger was lost, or the first request has another number of permits in it, or
--           the second request has already ended
--
-- The number of free permits does not change, and the script publishes nothing. Idempotent: a request that has
-- permits gets no more by this script. ZREM comes first, because a server out of memory lets a script continue that
-- has already written.
-- Example: 1 free, { u:1.1 = 2 }, to u:1.2 -> 1 free, { u:1.2 = 2 }, 0; once more -> 0.

local ledger, from, to, channel = KEYS[2], ARGV[1], ARGV[2], ARGV[5]

local got = redis.call('zscore', ledger, to)
if got and tonumber(got) >= 2 ^ 31 then
    -- The second request has already ended: this command arrives late.
    return -3
end
-- If the second request has permits, an earlier run handed them over. If the first request then has permits again, it
-- got them by a late acquire: they are not those that were handed over.
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

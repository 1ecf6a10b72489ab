-- Purpose: extends the leases of up to 100 permits; a failure of one does not affect the others.
--
-- KEYS[i]          the set of permits in use of the semaphore of the i-th permit
-- ARGV[2 * i - 1]  the id of the i-th permit
-- ARGV[2 * i]      its lease in milliseconds
--
-- Returns a list, one element for each key:
--   1   the permit is in use for the lease or longer
--   0   it is not in use, or its lease has ended: it was lost
--   -1  the server could not check it or could not extend it (another type under the key, no
--       permission): the state is unknown
--
-- A permit whose lease has ended is not renewed, because the next acquire may give it to another client. ZREM comes
-- before ZADD, because a server out of memory lets a script continue that has already written.
-- Example: KEYS = { "s", "s" }, a in use, b not: -> { 1, 0 }.

local answers = {}
local clock = redis.call('time')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

for i, key in ipairs(KEYS) do
    local id = ARGV[2 * i - 1]
    local ends = now + ARGV[2 * i]
    local score = redis.pcall('zscore', key, id)
    if type(score) == 'table' then
        answers[i] = -1
    elseif not score or tonumber(score) <= now then
        answers[i] = 0
    else
        answers[i] = 1
        if tonumber(score) < ends then
            -- No id is empty, so this command removes nothing.
            redis.pcall('zrem', key, '')
            local raised = redis.pcall('zadd', key, string.format('%.0f', ends), id)
            if type(raised) == 'table' then
                answers[i] = -1
            end
        end
    end
end

return answers

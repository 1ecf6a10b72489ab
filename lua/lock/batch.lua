-- Purpose: runs the scripts of several callers, one after the other; a failure of one does not affect the others.
--
-- KEYS[i]          the key of the i-th script
-- ARGV[6 * i - 5]  the i-th script: "a" for acquire.lua, "u" for unlock.lua
-- ARGV[6 * i - 4]  and the next four: its arguments; acquire.lua has three, so its last two are empty
--
-- Returns a list, one element for each key:
--   answer  what the script returns when a client calls it alone
--   "!"     the script failed, and did nothing; if the client calls it alone, the error says why
--
-- The functions `acquire` and `unlock` are the two files. Idempotent, because both scripts are.
-- Example: "a" free, "b" held by another for 5 s, acquires of both -> { nil, 5000 }, "a" held.

local scripts = { a = acquire, u = unlock }
local answers = {}

for i, key in ipairs(KEYS) do
    local at = 6 * i
    local args = { ARGV[at - 4], ARGV[at - 3], ARGV[at - 2], ARGV[at - 1], ARGV[at] }
    local ran, answer = pcall(scripts[ARGV[at - 5]], { key }, args)
    if not ran or type(answer) == 'table' then
        answer = '!'
    elseif answer == nil then
        -- A nil would end the list. The server returns false as nil.
        answer = false
    end
    answers[i] = answer
end

return answers

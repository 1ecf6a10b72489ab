-- Purpose: returns which commands the user of this connection may run. It runs none of them and adds no
--          line to the server's ACL LOG. Servers before Redis 7.0 cannot check this.
--
-- KEYS[]   none: the server would refuse the whole script if the user may not use a key
-- ARGV[n]  a complete command; single spaces separate its words
--
-- Returns one number for each command
--   1   the user may run it with these arguments
--   0   the user may not
--   -1  the server cannot check it
--
-- Example: user with +eval +ping, "ping" "time" -> 1, 0.

local answers = {}
for at, command in ipairs(ARGV) do
  local words = {}
  for word in string.gmatch(command, '%S+') do
    words[#words + 1] = word
  end
  -- Each command has all its arguments, because some servers read past the last argument that they get.
  local known, may = pcall(redis.acl_check_cmd, unpack(words))
  answers[at] = known and (may and 1 or 0) or -1
end
return answers

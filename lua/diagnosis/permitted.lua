-- Purpose: returns which commands this connection's user may run. It runs none of them and adds no
--          line to the server's ACL LOG. Servers before Redis 7.0 do not know.
--
-- KEYS[]   none: the server would refuse the whole script if the user may not use a key
-- ARGV[n]  a whole command, its words separated by single spaces
--
-- Returns one number for each: 1 may be run with these arguments, 0 may not, -1 not known
--
-- Example: user with +eval +ping, "ping" "time" -> 1, 0.

local told = {}
for at, command in ipairs(ARGV) do
  local words = {}
  for word in string.gmatch(command, '%S+') do
    words[#words + 1] = word
  end
  -- A command must have all its arguments: some servers read past the last one.
  local known, may = pcall(redis.acl_check_cmd, unpack(words))
  told[at] = known and (may and 1 or 0) or -1
end
return told

-- Purpose: tells which commands this connection's user may run, without running any of them and
--          without a line in the server's ACL LOG. Servers before Redis 7.0 cannot tell.
--
-- KEYS[]   none: a key that the user may not use would have the whole script refused
-- ARGV[n]  a whole command, its words parted by single spaces
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
  -- Fewer arguments than a command takes must never come here: some servers read past the last.
  local known, may = pcall(redis.acl_check_cmd, unpack(words))
  told[at] = known and (may and 1 or 0) or -1
end
return told

-- Purpose: marks the data of this server as complete, so that the server counts in quorums immediately.
--
-- KEYS[1]  the server's epoch, a hash { id, since }
-- ARGV[1]  when its data may have been lost, in milliseconds; 0: never
--
-- Returns the server's identity, "<run id>:<replication id>"
--
-- Example: no epoch -> { id = "d3..:b7..", since = 0 }, "d3..:b7..".

local run = string.match(redis.call('info', 'server'), 'run_id:(%w+)') or ''
local data = string.match(redis.call('info', 'replication'), 'master_replid:(%w+)') or ''
local id = run .. ':' .. data
redis.call('hset', KEYS[1], 'id', id, 'since', ARGV[1])
return id

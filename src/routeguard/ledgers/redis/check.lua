-- Whether the caller may run what the other scripts run, on keys of its own that are gone afterwards. Reply: the
-- commands that failed, each with the server's words.
local commands = {
  {'TIME'},
  {'HSET', KEYS[1], 'a', '1'},
  {'HSETNX', KEYS[1], 'b', '1'},
  {'HINCRBY', KEYS[1], 'b', '1'},
  {'HGET', KEYS[1], 'a'},
  {'HMGET', KEYS[1], 'a', 'b'},
  {'HGETALL', KEYS[1]},
  {'HDEL', KEYS[1], 'a', 'b'},
  {'ZADD', KEYS[2], '1', 'a'},
  {'ZADD', KEYS[2], '2', 'b'},
  {'ZSCORE', KEYS[2], 'a'},
  {'ZCOUNT', KEYS[2], '-inf', '+inf'},
  {'ZRANGEBYSCORE', KEYS[2], '-inf', '+inf', 'LIMIT', '0', '1'},
  {'PEXPIRE', KEYS[2], '1000'},
  {'ZREM', KEYS[2], 'a'},
  {'ZREMRANGEBYSCORE', KEYS[2], '-inf', '+inf'},
  {'SET', KEYS[3], 'a', 'PX', '1000'},
  {'MGET', KEYS[3]},
}
local failed = {}
for _, command in ipairs(commands) do
  local answer = redis.pcall(unpack(command))
  if type(answer) == 'table' and answer.err then
    failed[#failed + 1] = string.lower(command[1])
    failed[#failed + 1] = answer.err
  end
end
return failed

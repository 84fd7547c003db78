-- Whether the caller is the first to ask for a name.
--
-- ARGV  name, who asks, seconds at which it is forgotten or empty
-- Reply ok, who was first
local field, by, ends = 'first|' .. take(), take(), tonumber(take())
if redis.call('HGET', LEDGER, 'epoch') ~= ARGV[1] then
  return reply('lost')
end
write_even_when_full()
local due = redis.call('ZSCORE', DUE, 'm' .. field)
if due and tonumber(due) <= now then
  redis.call('HDEL', LEDGER, field)
end
if redis.call('HSETNX', LEDGER, field, by) == 1 and ends then
  redis.call('ZADD', DUE, text(now + (ends - wall) * SECOND), 'm' .. field)
end
return reply('ok', redis.call('HGET', LEDGER, field))

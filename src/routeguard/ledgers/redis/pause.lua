-- Turn the kill switch, unless somebody has turned it since this was asked: a copy that comes late turns nothing back.
--
-- ARGV  microseconds at which it was asked, as an earlier answer told them (empty: only tell the time), 1 or 0
-- Reply ok: it stands as asked. stale: ask again, with the time of this answer. late: turned since, and not as asked.
local asked, wanted = tonumber(take()), take()
local found = redis.call('HMGET', LEDGER, 'epoch', 'paused', 'turned')
if found[1] ~= ARGV[1] then
  return reply('lost')
end
if not asked or asked > now or asked < now - ASKED_TOO_LONG_AGO then
  return reply('stale')
end
write_even_when_full()
local turned = tonumber(found[3] or '0')
if turned > now then
  -- The clock was set back since: from here on that turn is one of now, or nobody could turn it until the clock has
  -- caught up.
  redis.call('HSET', LEDGER, 'turned', now_text)
  return reply('stale')
end
if turned > asked then
  return reply((found[2] or '0') == wanted and 'ok' or 'late')
end
redis.call('HSET', LEDGER, 'paused', wanted, 'turned', now_text)
return reply('ok')

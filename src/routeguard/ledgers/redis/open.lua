-- Found the ledger, or find it. ARGV: 4 schema, 5 epoch, 6 salt for a new one, 7 the journal of the caller or empty.
-- Reply: epoch, then "paused until salt schema".
if text(2 ^ 53) ~= '9007199254740992' then
  return redis.error_reply('INTEGERS are too small on this server to count money')
end
local schema, epoch, salt, journal = take(), take(), take(), take()
if not redis.call('HGET', LEDGER, 'epoch') then
  redis.call('HSET', LEDGER, 'epoch', epoch)
  redis.call('HSETNX', LEDGER, 'schema', schema)
  redis.call('HSETNX', LEDGER, 'salt', salt)
end
-- A journal that is new to the ledger begins with what the accounts hold, or it would never add up.
if journal ~= '' and redis.call('HSETNX', LEDGER, 'journal ' .. journal, '1') == 1 then
  redis.call('HSET', LEDGER, 'journal', '1')
  local all = redis.call('HGETALL', LEDGER)
  for i = 1, #all, 2 do
    local a = string.match(all[i + 1], '^%d+ %d+ %d+ %d+ %d+$') and account(all[i + 1])
    if a and a.settled + a.kept + a.orphaned + a.overrun > 0 then
      write_down('opening', now_text .. '-' .. all[i], 0, a, {all[i]}, '-')
    end
  end
end
local found = redis.call('HMGET', LEDGER, 'epoch', 'schema', 'salt', 'paused', 'until', 'wall')
wall = math.max(wall, tonumber(found[6] or '0'))
local switches = {found[4] == '1' and '1' or '0', recovering(found[5]), found[3], found[2]}
return reply('ok', found[1], table.concat(switches, ' '))

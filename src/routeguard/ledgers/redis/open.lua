-- Found the ledger, or find it. ARGV: 3 schema, 4 epoch, 5 salt for a new one. Reply: epoch, then
-- "paused until salt schema".
local schema, epoch, salt = take(), take(), take()
if not redis.call('HGET', LEDGER, 'epoch') then
  redis.call('HSET', LEDGER, 'epoch', epoch)
  redis.call('HSETNX', LEDGER, 'schema', schema)
  redis.call('HSETNX', LEDGER, 'salt', salt)
end
local found = redis.call('HMGET', LEDGER, 'epoch', 'schema', 'salt', 'paused', 'until', 'wall')
wall = math.max(wall, tonumber(found[6] or '0'))
local switches = {found[4] == '1' and '1' or '0', recovering(found[5]), found[3], found[2]}
return reply('ok', found[1], table.concat(switches, ' '))

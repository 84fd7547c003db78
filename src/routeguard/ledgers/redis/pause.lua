-- Turn the kill switch. ARGV: 1 or 0.
if redis.call('HGET', LEDGER, 'epoch') ~= ARGV[1] then
  return reply('lost')
end
write_even_when_full()
redis.call('HSET', LEDGER, 'paused', take())
return reply('ok')

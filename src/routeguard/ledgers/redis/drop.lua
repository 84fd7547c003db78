-- The journal has these records. ARGV: the records.
for i = argument + 1, #ARGV do
  redis.call('ZREM', UNWRITTEN, ARGV[i])
end
return reply('ok')

-- What the ledger says without being changed, but for what was due.
--
-- ARGV  how much of what is due to do, how many records of the dead to hand over, counters, then each: counter start
--       end next_end
-- Reply "paused until salt", streams holding a slot and behind an empty line the records, everybody's accounts in
--       that order.
local LEFT_BEHIND = 2 * SECOND
local most, left = take(), take()
local known = {}
for i = 1, tonumber(take()) do
  known[i] = read_windows()
end
local meta = redis.call('HMGET', LEDGER, 'epoch', 'paused', 'until', 'wall', 'salt')
if meta[1] ~= ARGV[1] then
  return reply('lost')
end
wall = math.max(wall, tonumber(meta[4] or '0'))
reap(most)
local fields = {}
for i, windows in ipairs(known) do
  local found = window(windows)
  if not found then
    return reply('stale')
  end
  fields[i] = found .. 'a'
end
local streams = redis.call('ZCOUNT', SLOTS, '(' .. now_text, '+inf')
local switches = {meta[2] == '1' and '1' or '0', recovering(meta[3]), meta[5] or '-'}
local found = {text(streams)}
if left ~= '0' then
  local before = text(now - LEFT_BEHIND)
  for _, record in ipairs(redis.call('ZRANGEBYSCORE', UNWRITTEN, '-inf', before, 'LIMIT', '0', left)) do
    found[#found + 1] = record
  end
end
local answer = reply('ok', table.concat(switches, ' '), table.concat(found, '\n\n'))
if #fields > 0 then
  local packed = redis.call('HMGET', LEDGER, unpack(fields))
  for i, field in ipairs(fields) do
    add(answer, field, packed[i] or NOTHING)
  end
end
return answer

-- Everything an auditor asks for, of one moment. Takes as long as there are accounts and reservations.
--
-- Reply the records that wait for the journal, behind an empty line each; "field open orphaned" a line for what the
-- reservations add up to; every account. Or "unreadable", and the first account that is none of ours any more.
if redis.call('HGET', LEDGER, 'epoch') ~= ARGV[1] then
  return reply('lost')
end
local sums = {}
local calls = redis.call('HGETALL', CALLS)
for i = 2, #calls, 2 do
  local parts = words(calls[i])
  if parts[1] == 'open' or parts[1] == 'orphaned' then
    for field = 3, #parts do
      local held = sums[parts[field]] or {open = 0, orphaned = 0}
      held[parts[1]] = held[parts[1]] + tonumber(parts[2])
      sums[parts[field]] = held
    end
  end
end
local lines = {}
for field, held in pairs(sums) do
  lines[#lines + 1] = field .. ' ' .. text(held.open) .. ' ' .. text(held.orphaned)
end
local unwritten = redis.call('ZRANGEBYSCORE', UNWRITTEN, '-inf', '+inf')
local answer = reply('ok', table.concat(unwritten, '\n\n'), table.concat(lines, '\n'))
local all = redis.call('HGETALL', LEDGER)
for i = 1, #all, 2 do
  if string.match(all[i + 1], '^%d+ %d+ %d+ %d+ %d+$') then
    add(answer, all[i], all[i + 1])
  elseif string.match(all[i], '|[ao]$') or string.match(all[i], '|c|') then
    return reply('unreadable', all[i])
  end
end
return answer

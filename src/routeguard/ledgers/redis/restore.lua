-- The store lost what it had acknowledged: raise every account to the highest values the caller knows, put its open
-- reservations back, and let nobody reserve until every running process had the time to do the same. Nothing is ever
-- lowered, so it may run as often and as late as it likes.
--
-- ARGV  microseconds at which it was asked (by the server's clock), first call of this caller (1 or 0), a new epoch,
--       salt, paused, schema, microseconds of grace, a second that no window may be before, how often something was
--       changed by hand, the journal of this caller or empty,
--       accounts, then each: field, settled, kept, overrun, highest total, seconds at which its window ends or empty
--       reservations, then each: id, lease in microseconds, holds a slot of everybody (1 or 0), its client slots in
--       KEYS (0 or 1), amount, fields, then the fields
-- Reply the epoch that holds now, and until when nobody reserves.
if tonumber(take()) < now - ASKED_TOO_LONG_AGO then
  return reply('stale')
end
local first, epoch, salt, paused = take() == '1', take(), take(), take()
local schema, grace, latest = take(), tonumber(take()), tonumber(take())
local adjusts, journal = tonumber(take()), take()
write_even_when_full()
local found = redis.call('HMGET', LEDGER, 'epoch', 'restored', 'until', 'wall')
if first then
  local waits = tonumber(found[3] or '0')
  if not found[1] or found[1] == ARGV[1] then
    waits = now + grace
  else
    -- Somebody else began anew. If it was a process that knew of no loss, nobody has waited yet.
    epoch = found[1]
    if found[2] ~= epoch then
      waits = now + grace
    end
  end
  redis.call('HSET', LEDGER, 'epoch', epoch, 'restored', epoch, 'schema', schema, 'salt', salt, 'until', text(waits))
  found[1], found[3] = epoch, text(waits)
  adjusts = math.max(adjusts, tonumber(redis.call('HGET', LEDGER, 'adjusts') or '0'))
  redis.call('HSET', LEDGER, 'adjusts', text(adjusts))
  if journal ~= '' then
    -- It has its opening records: they are not to be written again.
    redis.call('HSET', LEDGER, 'journal', '1', 'journal ' .. journal, '1')
  end
  if paused == '1' then
    -- A resume that was asked before is too late now.
    redis.call('HSET', LEDGER, 'paused', '1', 'turned', now_text)
  end
elseif found[1] ~= ARGV[1] then
  return reply('lost')
end

-- A window does not move backwards either.
wall = math.max(wall, latest, tonumber(found[4] or '0'))
redis.call('HSET', LEDGER, 'wall', text(wall))

local function raise(field, settled, kept, overrun, highest, ends)
  local packed = redis.call('HGET', LEDGER, field)
  local a = account(packed)
  a.settled, a.kept = math.max(a.settled, settled), math.max(a.kept, kept)
  a.overrun = math.max(a.overrun, overrun)
  -- Open money whose owner is not known to live is orphaned money.
  a.orphaned = math.max(a.orphaned, highest - a.settled - a.kept - a.open)
  if total(a) == 0 then
    return
  end
  if not packed then
    local kept_until = ends and text(now + (ends - wall) * SECOND + PAST_KEPT)
    local window = window_of_client(field)
    if kept_until then
      redis.call('ZADD', DUE, kept_until, 'm' .. field)
    end
    if window and redis.call('HINCRBY', LEDGER, window .. 'n', '1') == 1 and kept_until then
      redis.call('ZADD', DUE, kept_until, 'm' .. window .. 'n')
    end
  end
  redis.call('HSET', LEDGER, field, pack(a))
end

for _ = 1, tonumber(take()) do
  raise(take(), tonumber(take()), tonumber(take()), tonumber(take()), tonumber(take()), tonumber(take()))
end

local key = COMMON_KEYS
for _ = 1, tonumber(take()) do
  local id, lease, holds, client_slots = take(), tonumber(take()), take() == '1', tonumber(take())
  local amount_text = take()
  local amount, record = tonumber(amount_text), {'open', amount_text}
  for i = 1, tonumber(take()) do
    record[i + 2] = take()
  end
  local slot
  if client_slots == 1 then
    key = key + 1
    slot = KEYS[key]
  end
  if not redis.call('HGET', CALLS, id) then
    for i = 3, #record do
      local packed = redis.call('HGET', LEDGER, record[i])
      if packed then
        local a = account(packed)
        a.open, a.orphaned = a.open + amount, math.max(0, a.orphaned - amount)
        redis.call('HSET', LEDGER, record[i], pack(a))
      end
    end
    redis.call('HSET', CALLS, id, table.concat(record, ' '))
    redis.call('ZADD', DUE, text(now + lease), 'r' .. id)
    if holds then
      redis.call('ZADD', SLOTS, text(now + lease), id)
    end
    if slot then
      redis.call('ZADD', slot, text(now + lease), id)
      redis.call('PEXPIRE', slot, text(math.ceil((lease + DAY) / 1000)))
    end
  end
end
return reply('ok', found[1], found[3])

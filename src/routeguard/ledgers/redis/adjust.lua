-- Change by hand what is charged, once, and remember why.
--
-- ARGV  id, signed amount, what the journal is told, then for one account: counter start end next_end and its share
--       (`a` or `c|<client>`); for the ending of an orphan an empty counter, and no more
-- Reply ok with the record; refused with why.
local ADJUSTED_KEPT = 400 * DAY
-- The largest budget. From 2^53 on, a little more, a number here loses what is added to it.
local MOST = 9000000 * 1000000000
local id, amount, note, known = take(), tonumber(take()), take(), read_windows()
local share = take()
if redis.call('HGET', LEDGER, 'epoch') ~= ARGV[1] then
  return reply('lost')
end
local done = redis.call('HGET', CALLS, 'adjust:' .. id)
if done then
  return reply('ok', done)
end
write_even_when_full()

-- Orphaned money of which no reservation is known: a store that forgot was raised by it.
local function unexplained(field, orphaned)
  local records = orphaned > 0 and redis.call('HGETALL', CALLS) or {}
  for i = 2, #records, 2 do
    local parts = words(records[i])
    if parts[1] == 'orphaned' then
      for n = 3, #parts do
        if parts[n] == field then
          orphaned = orphaned - tonumber(parts[2])
        end
      end
    end
  end
  return math.max(0, orphaned)
end

local fields, ceiling, changed = {}, 0, {settled = amount, kept = 0}
if known.counter == '' then
  local parts = words(redis.call('HGET', CALLS, id) or 'forgotten 0')
  if parts[1] ~= 'orphaned' then
    return reply('refused', parts[1])
  end
  ceiling, fields = tonumber(parts[2]), {unpack(parts, 3)}
  changed.orphaned, changed.overrun = -ceiling, math.max(0, amount - ceiling)
  redis.call('HSET', CALLS, id, 'settled ' .. parts[2])
  redis.call('ZADD', DUE, text(now + ENDED_KEPT), 'r' .. id)
else
  wall = math.max(wall, tonumber(redis.call('HGET', LEDGER, 'wall') or '0'))
  local found = window(known)
  if not found then
    return reply('stale')
  end
  fields[1] = found .. share
  local packed = redis.call('HGET', LEDGER, fields[1])
  if not packed then
    return reply('refused', 'nothing')
  end
  local a = account(packed)
  if amount > 0 and a.settled + a.kept + a.open + a.orphaned + amount > MOST then
    return reply('refused', 'too_high')
  end
  if amount < 0 then
    -- Kept money first, of which nobody knows that it was billed.
    changed.kept = -math.min(-amount, a.kept)
    changed.settled = -math.min(-amount + changed.kept, a.settled)
    local rest = amount - changed.kept - changed.settled
    if -rest > unexplained(fields[1], a.orphaned) then
      return reply('refused', 'too_much')
    end
    changed.orphaned = rest
  end
end
for _, field in ipairs(fields) do
  local packed = redis.call('HGET', LEDGER, field)
  if packed then
    local a = account(packed)
    for part, by in pairs(changed) do
      -- A store that forgot and was raised may hold less as orphaned than its records say.
      a[part] = math.max(0, a[part] + by)
    end
    store(field, a)
  end
end
-- Whoever remembers more than there is now must not take it for a loss.
redis.call('HINCRBY', LEDGER, 'adjusts', '1')
local record = write_down('adjust', id, ceiling, changed, fields, note)
if not redis.call('HGET', LEDGER, 'journal') then
  redis.call('ZREM', UNWRITTEN, record)
end
redis.call('HSET', CALLS, 'adjust:' .. id, record)
redis.call('ZADD', DUE, text(now + ADJUSTED_KEPT), 'radjust:' .. id)
return reply('ok', record)

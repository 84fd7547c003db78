-- End a reservation in the accounts its record names: replace what it debited by what is charged.
--
-- ARGV  id, state, settled, kept, what the guard knows besides (empty: no journal); the client slots it may hold are
--       KEYS from 6. When nobody was admitted by it: what the log of each rate is that it may have a place in, log or
--       buckets; these logs are the last of KEYS
-- Reply ok with the record and the accounts; ended when it had ended before; unknown when there is no record. Then the
--       ending is written down as well: a reserve that is still on its way must find it.
local id, state, settled, kept, note = take(), take(), tonumber(take()), tonumber(take()), take()
local rates = #ARGV - argument
local EVENTS = {settled = 'settle', kept = 'keep', released = 'release'}
if redis.call('HGET', LEDGER, 'epoch') ~= ARGV[1] then
  return reply('lost')
end
write_even_when_full()

local function finish(amount)
  redis.call('HSET', CALLS, id, state .. ' ' .. amount)
  redis.call('ZADD', DUE, text(now + ENDED_KEPT), 'r' .. id)
  redis.call('ZREM', SLOTS, id)
  for i = COMMON_KEYS + 1, #KEYS - rates do
    redis.call('ZREM', KEYS[i], id)
  end
end

local record = redis.call('HGET', CALLS, id)
if not record then
  finish('0')
  return reply('unknown')
end
local parts = words(record)
if parts[1] ~= 'open' and parts[1] ~= 'orphaned' then
  return reply('ended', parts[1])
end
local amount = tonumber(parts[2])
local overrun = math.max(0, settled + kept - amount)
local written = ''
if note ~= '' then
  local changed = {settled = settled, kept = kept, overrun = overrun}
  changed.orphaned = parts[1] == 'orphaned' and -amount or 0
  written = write_down(EVENTS[state], id, amount, changed, {unpack(parts, 3)}, note)
end
local answer = reply('ok', written)
for i = 3, #parts do
  local packed = redis.call('HGET', LEDGER, parts[i])
  -- A past window that was purged has nothing left to correct.
  if packed then
    local a = account(packed)
    -- A store that forgot and was raised may hold less as orphaned than its records say.
    a[parts[1]] = math.max(0, a[parts[1]] - amount)
    a.settled, a.kept = a.settled + settled, a.kept + kept
    a.overrun = a.overrun + overrun
    store(parts[i], a)
    add(answer, parts[i], pack(a))
  end
end
if rates > 0 and parts.claimed then
  give_places_back(parts, {unpack(KEYS, #KEYS - rates + 1)}, {unpack(ARGV, argument + 1)})
end
finish(parts[2])
return answer

-- Charge what a bill exceeds its charge by to the windows of its reservation, once.
--
-- ARGV  id of the charge, amount, clients_max, what the guard knows besides (empty: no journal), then the fields of
--       the accounts
-- Reply ok with the record and the accounts.
-- More than a clock that is set a day ahead takes from it.
local LATE_KEPT = 2 * DAY
local charge_id, extra, clients_max, note = take(), tonumber(take()), tonumber(take()), take()
local id = 'late:' .. charge_id
if redis.call('HGET', LEDGER, 'epoch') ~= ARGV[1] then
  return reply('lost')
end
if redis.call('HGET', CALLS, id) then
  return reply('ended')
end
write_even_when_full()

-- The account a late bill belongs to. A client may have left the map while its money was zero: it comes back, or
-- finds the map full. Nil when the window was purged.
local function find(field)
  local packed = redis.call('HGET', LEDGER, field)
  local window = window_of_client(field)
  if packed or not window then
    return field, packed
  end
  local clients = redis.call('HGET', LEDGER, window .. 'n')
  if not clients then
    return field, nil
  end
  if tonumber(clients) >= clients_max then
    return window .. 'o', redis.call('HGET', LEDGER, window .. 'o')
  end
  redis.call('HINCRBY', LEDGER, window .. 'n', '1')
  local ends = redis.call('ZSCORE', DUE, 'm' .. window .. 'n')
  if ends then
    redis.call('ZADD', DUE, ends, 'm' .. field)
  end
  return field, NOTHING
end

local fields, accounts = {}, {}
for i = argument + 1, #ARGV do
  local field, packed = find(ARGV[i])
  if packed then
    local a = account(packed)
    a.settled, a.overrun = a.settled + extra, a.overrun + extra
    redis.call('HSET', LEDGER, field, pack(a))
    fields[#fields + 1], accounts[#accounts + 1] = field, pack(a)
  end
end
local written = ''
if note ~= '' then
  written = write_down('late', charge_id, 0, {settled = extra, overrun = extra}, fields, note)
end
local answer = reply('ok', written)
for i, field in ipairs(fields) do
  add(answer, field, accounts[i])
end
redis.call('HSET', CALLS, id, 'late')
redis.call('ZADD', DUE, text(now + LATE_KEPT), 'r' .. id)
return answer

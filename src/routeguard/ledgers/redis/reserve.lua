-- Debit every claim, or none: rates, budgets, slots and the record in one step. A refusal writes nothing.
--
-- ARGV  id, microseconds at which it was asked (by the server's clock), force, amount, clients_max,
--       budgets, then each: counter start end next_end, limit, client (empty: everybody),
--       slots, lease in microseconds, then each: quota (empty: none); its zset is the next of KEYS
--       rates, then each: quota, window in microseconds; its log is the next of KEYS
-- Reply ok or refused: a letter a budget (. fits, n never, s spent, b busy) and a slot (. f full), then the
--       microseconds until each rate has a slot. known: the record. stale: ask again with newer windows and time.
local REAPED = 8
local EXACT_MAX, BUCKETS = 100, 60

local id, asked, force = take(), tonumber(take()), take() == '1'
local amount_text, clients_max = take(), tonumber(take())
local amount = tonumber(amount_text)
local money = {}
for i = 1, tonumber(take()) do
  money[i] = {known = read_windows(), limit = tonumber(take()), client = take()}
end
local key = COMMON_KEYS
local function next_key()
  key = key + 1
  return KEYS[key]
end
local slots, slot_count, lease = {}, tonumber(take()), tonumber(take())
for i = 1, slot_count do
  slots[i] = {key = next_key(), quota = tonumber(take())}
end
local rates = {}
for i = 1, tonumber(take()) do
  rates[i] = {key = next_key(), quota = tonumber(take()), window = tonumber(take())}
end

-- The accounts of every claim, in one read; false when a window is not one of those the caller knows.
local meta
local function read_accounts()
  local fields = {'epoch', 'until', 'wall', 'adjusts', 'moved'}
  for _, claim in ipairs(money) do
    claim.window, claim.ends = window(claim.known)
    if not claim.window then
      return false
    end
    if claim.client == '' then
      fields[#fields + 1] = claim.window .. 'a'
    else
      fields[#fields + 1] = claim.window .. 'c|' .. claim.client
      fields[#fields + 1] = claim.window .. 'o'
      fields[#fields + 1] = claim.window .. 'n'
    end
  end
  meta = redis.call('HMGET', LEDGER, unpack(fields))
  local at = 5
  for _, claim in ipairs(money) do
    at = at + 1
    claim.field, claim.packed = fields[at], meta[at]
    if claim.client ~= '' then
      claim.clients = tonumber(meta[at + 2] or '0')
      if not claim.packed and claim.clients >= clients_max then
        claim.field, claim.packed, claim.overflow = fields[at + 1], meta[at + 1], true
      end
      at = at + 2
    end
    claim.account = account(claim.packed)
  end
  return true
end

local function number(log, from, digits)
  return tonumber(string.sub(log, from, from + digits - 1))
end

local function write_log(rate, log)
  redis.call('SET', rate.key, log, 'PX', text(math.ceil(rate.window / 1000)))
end

-- Claims that were moved are not found where their records say: none of those made before is given back.
local function write_moved(rate, log)
  meta[5] = text(redis.call('HINCRBY', LEDGER, 'moved', '1'))
  write_log(rate, log)
end

-- Up to EXACT_MAX a rate is a log of its claims, 16 digits each, oldest first. A clock set back leaves claims in the
-- future: they happened before now, so they count from now, late rather than early. That is written at once, also
-- by a refusal, or they would count from now for ever.
local function exact_wait(rate)
  local log = rate.log
  if log ~= '' and number(log, #log - 15, 16) > now then
    log = string.gsub(log, '%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d', function(entry)
      return string.format('%016d', math.min(tonumber(entry), now))
    end)
    rate.log = log
    write_moved(rate, log)
  end
  if #log < 16 * rate.quota then
    return 0
  end
  return math.max(0, number(log, #log - 16 * rate.quota + 1, 16) + rate.window - now)
end

local function exact_claim(rate)
  return string.sub(rate.log .. string.format('%016d', now), -16 * EXACT_MAX)
end

-- Above it, claims share a bucket of a sixtieth of the window: "first last count", 16, 16 and 10 digits, behind a
-- total of 10. A bucket leaves when its youngest claim is a window old: at most that sixtieth late, never early.
local function bucket_wait(rate)
  local log = rate.log
  if log == '' then
    log = '0000000000'
  elseif number(log, #log - 25, 16) > now then
    local clipped = string.gsub(string.sub(log, 11), '(' .. string.rep('%d', 16) .. ')(' .. string.rep('%d', 16) .. ')('
      .. string.rep('%d', 10) .. ')', function(first, last, count)
      return string.format('%016d%016d%s', math.min(tonumber(first), now), math.min(tonumber(last), now), count)
    end)
    log = string.sub(log, 1, 10) .. clipped
    write_moved(rate, log)
  end
  local held, from = number(log, 1, 10), 11
  while from <= #log and number(log, from + 16, 16) <= now - rate.window do
    held, from = held - number(log, from + 32, 10), from + 42
  end
  rate.log, rate.total, rate.from = log, held, from
  local over = held - rate.quota + 1
  if over <= 0 then
    return 0
  end
  while over > number(log, from + 32, 10) do
    over, from = over - number(log, from + 32, 10), from + 42
  end
  return number(log, from + 16, 16) + rate.window - now
end

local function bucket_claim(rate)
  local log, from, total = rate.log, rate.from, string.format('%010d', rate.total + 1)
  local newest = #log - 41
  if newest >= from and now - number(log, newest, 16) < math.floor(rate.window / BUCKETS) then
    local count = number(log, newest + 32, 10) + 1
    return total .. string.sub(log, from, newest + 15) .. string.format('%016d%010d', now, count)
  end
  return total .. string.sub(log, from) .. string.format('%016d%016d%010d', now, now, 1)
end

-- What stands in the way: letters of budgets and slots, waits of rates, whether anything does, and whether a rate does.
local function verdict()
  local letters, waits, refused, limited = {}, {}, false, false
  for i, claim in ipairs(money) do
    local a = claim.account
    local spent = a.settled + a.kept + a.orphaned
    letters[i] = '.'
    if amount > claim.limit and claim.limit > 0 then
      letters[i] = 'n'
    elseif spent + amount > claim.limit then
      letters[i] = 's'
    elseif spent + a.open + amount > claim.limit then
      letters[i] = 'b'
    end
    refused = refused or letters[i] ~= '.'
  end
  for _, slot in ipairs(slots) do
    local full = slot.quota and redis.call('ZCOUNT', slot.key, '(' .. now_text, '+inf') >= slot.quota
    letters[#letters + 1] = full and 'f' or '.'
    refused = refused or full
  end
  if #rates > 0 then
    local keys = {}
    for i, rate in ipairs(rates) do
      keys[i] = rate.key
    end
    local logs = redis.call('MGET', unpack(keys))
    for i, rate in ipairs(rates) do
      rate.log = logs[i] or ''
      local wait
      if rate.quota <= EXACT_MAX then
        wait = exact_wait(rate)
      else
        wait = bucket_wait(rate)
      end
      waits[i] = text(wait)
      limited = limited or wait > 0
    end
  end
  return table.concat(letters), table.concat(waits, ' '), refused or limited, limited
end

local function debit(limited)
  local written, record = {'wall', text(wall)}, {'open', amount_text}
  for _, claim in ipairs(money) do
    if not claim.packed then
      local kept = claim.ends and text(now + (claim.ends - wall) * SECOND + PAST_KEPT)
      if kept then
        redis.call('ZADD', DUE, kept, 'm' .. claim.field)
      end
      if claim.client ~= '' and not claim.overflow then
        if claim.clients == 0 and kept then
          redis.call('ZADD', DUE, kept, 'm' .. claim.window .. 'n')
        end
        claim.clients = claim.clients + 1
        written[#written + 1], written[#written + 2] = claim.window .. 'n', text(claim.clients)
      end
    end
    claim.account.open = claim.account.open + amount
    claim.packed = pack(claim.account)
    written[#written + 1], written[#written + 2] = claim.field, claim.packed
    record[#record + 1] = claim.field
  end
  -- What is only observed takes no place that is not there: of a crowd, all would be counted as refused and not the
  -- excess.
  local claimed = limited and {} or rates
  if #claimed > 0 then
    record[#record + 1] = '@' .. now_text .. '.' .. (meta[5] or '0')
  end
  local ends = text(now + lease)
  redis.call('HSET', LEDGER, unpack(written))
  redis.call('HSET', CALLS, id, table.concat(record, ' '))
  redis.call('ZADD', DUE, ends, 'r' .. id)
  for _, slot in ipairs(slots) do
    redis.call('ZADD', slot.key, ends, id)
    if slot.key ~= SLOTS then
      -- Those of everybody are reaped; a client's go with its next stream, or with the key. A day more, so that a
      -- guard with shorter streams does not cut off the lease of another.
      redis.call('ZREMRANGEBYSCORE', slot.key, '-inf', now_text)
      redis.call('PEXPIRE', slot.key, text(math.ceil((lease + DAY) / 1000)))
    end
  end
  for _, rate in ipairs(claimed) do
    write_log(rate, rate.quota <= EXACT_MAX and exact_claim(rate) or bucket_claim(rate))
  end
end

local known_windows = read_accounts()
if not known_windows then
  meta = redis.call('HMGET', LEDGER, 'epoch', 'until', 'wall', 'adjusts')
end
adjusts = meta[4] or '0'
if meta[1] ~= ARGV[1] then
  return reply('lost')
end
local recovers = recovering(meta[2])
if recovers ~= '0' then
  return reply('recovering', recovers)
end
local latest = tonumber(meta[3] or '0')
if latest > wall then
  wall = latest
  known_windows = read_accounts()
end
if reap(REAPED) and known_windows then
  read_accounts()
end
local record = redis.call('HGET', CALLS, id)
if record then
  return reply('known', record)
elseif not known_windows or asked < now - ASKED_TOO_LONG_AGO then
  return reply('stale')
end
local letters, waits, refused, limited = verdict()
local admitted = force or not refused
if admitted then
  debit(limited)
end
local answer = reply(admitted and 'ok' or 'refused', letters, waits)
for _, claim in ipairs(money) do
  add(answer, claim.field, claim.packed or NOTHING, claim.clients and text(claim.clients))
end
return answer

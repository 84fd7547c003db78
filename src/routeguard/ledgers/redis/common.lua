-- In front of every script. What all of them share: the keys, the time, and how an account and a record are written.
--
-- KEYS  1 hash    the ledger: epoch, schema, salt, paused, turned, wall, until, restored, and one field an
--                   account, and who was first to ask for a name
--       2 hash    records by reservation id, and the ids of late charges
--       3 zset    what is due when (microseconds): r<id> a lease or a record, m<field> a past account
--       4 zset    slots of everybody: id by the end of its lease
--       5 zset    records that no journal has yet, by the microsecond in which they were written
-- ARGV  1 the epoch the caller knows, 2 the time: empty for the server's own, in tests "<seconds> <microseconds>"
-- Reply status, microseconds, window seconds, ids orphaned just now, how often something was changed by hand, two
--       values of the script, then accounts as field, parts, clients with money in that window.
--
-- Amounts come and go as text. `..`, tostring and cjson turn 1e14 into an exponent, some servers also 1e8, so a
-- number becomes text through '%.0f' alone, which is exact up to 2^53.
--
-- An account is "settled kept open orphaned overrun" under <counter>|<window start>|a for everybody, |c|<client> for
-- a client, |o for the clients who find the map full; |n counts the clients with money.
local LEDGER, CALLS, DUE, SLOTS, UNWRITTEN = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local COMMON_KEYS = 5
local SECOND = 1000000
local DAY = 86400 * SECOND
-- A past window is kept for the streams that were reserved in it, an orphan for whoever knows its bill and asked about
-- again, an ended record for the reply that was lost.
local PAST_KEPT, ORPHAN_KEPT, ENDED_KEPT = 2 * DAY, 7 * DAY, 600 * SECOND

-- A command that was on its way for longer is of another time.
local ASKED_TOO_LONG_AGO = 5 * SECOND
-- What is known of a store that forgot is raised by then.
local RECOVERING_MAX = 5 * SECOND

local now, wall
if ARGV[2] == '' then
  local time = redis.call('TIME')
  wall = tonumber(time[1])
  now = wall * SECOND + tonumber(time[2])
else
  wall, now = string.match(ARGV[2], '^(%d+) (%d+)$')
  wall, now = tonumber(wall), tonumber(now)
end

local now_text = string.format('%.0f', now)

local argument = 2
local function take()
  argument = argument + 1
  return ARGV[argument]
end

local function text(number)
  return string.format('%.0f', number)
end

local NOTHING = '0 0 0 0 0'

local function account(packed)
  local s, k, o, h, x = string.match(packed or NOTHING, '^(%d+) (%d+) (%d+) (%d+) (%d+)$')
  return {
    settled = tonumber(s), kept = tonumber(k), open = tonumber(o), orphaned = tonumber(h), overrun = tonumber(x)
  }
end

local function pack(a)
  return string.format('%.0f %.0f %.0f %.0f %.0f', a.settled, a.kept, a.open, a.orphaned, a.overrun)
end

local function total(a)
  return a.settled + a.kept + a.open + a.orphaned
end

-- `<counter>|<window start>|` of a client's account; nil for everybody's and for the overflow client's.
local function window_of_client(field)
  return string.match(field, '^([^|]*|[^|]*|[^|]*|[^|]*|)c|')
end

local function words(record)
  local found = {}
  for word in string.gmatch(record, '%S+') do
    found[#found + 1] = word
  end
  return found
end

-- Write an account back. A client without money leaves the map.
local function store(field, a)
  local window = window_of_client(field)
  if window and total(a) == 0 then
    redis.call('HDEL', LEDGER, field)
    redis.call('ZREM', DUE, 'm' .. field)
    redis.call('HINCRBY', LEDGER, window .. 'n', '-1')
  else
    redis.call('HSET', LEDGER, field, pack(a))
  end
end

-- Redis 6.2 does not know the allow-oom flag. There, a script that has begun to write with a command that takes no
-- memory may go on when memory is full.
local function write_even_when_full()
  redis.call('ZREM', DUE, '')
end

-- Keep a record until the journal has it: "event id microseconds ceiling settled kept orphaned overrun", the fields of
-- the accounts that changed by it, and what the guard knows besides, a line each, which is never empty.
local function write_down(event, id, ceiling, changed, fields, note)
  local at = text(wall) .. string.format('%06.0f', now % SECOND)
  local amounts = {text(ceiling)}
  for _, part in ipairs({'settled', 'kept', 'orphaned', 'overrun'}) do
    amounts[#amounts + 1] = text(changed[part] or 0)
  end
  local head = event .. ' ' .. id .. ' ' .. at .. ' ' .. table.concat(amounts, ' ')
  local names = #fields > 0 and table.concat(fields, ' ') or '-'
  local record = head .. '\n' .. names .. '\n' .. note
  redis.call('ZADD', UNWRITTEN, now_text, record)
  return record
end

-- Until when nobody reserves, or '0'. A clock set back in the meantime must not make a day of it.
local function recovering(found)
  local ends = tonumber(found or '0')
  if ends > now + RECOVERING_MAX then
    ends = now + RECOVERING_MAX
    redis.call('HSET', LEDGER, 'until', text(ends))
  end
  return ends > now and text(ends) or '0'
end

local orphans = {}

-- The lease is over: the slot is free, the money stays.
local function orphan(id, record)
  local parts = words(record)
  local amount = tonumber(parts[2])
  for i = 3, #parts do
    local packed = redis.call('HGET', LEDGER, parts[i])
    if packed then
      local a = account(packed)
      -- Less where the store forgot a past window and somebody raised it after the record was put back.
      local moved = math.min(a.open, amount)
      a.open, a.orphaned = a.open - moved, a.orphaned + moved
      redis.call('HSET', LEDGER, parts[i], pack(a))
    end
  end
  if redis.call('HGET', LEDGER, 'journal') then
    write_down('orphan', id, amount, {orphaned = amount}, {unpack(parts, 3)}, '-')
  end
  parts[1] = 'orphaned'
  redis.call('HSET', CALLS, id, table.concat(parts, ' '))
  redis.call('ZADD', DUE, text(now + ORPHAN_KEPT), 'r' .. id)
  redis.call('ZREM', SLOTS, id)
  orphans[#orphans + 1] = id
end

-- An orphan is of use as long as an account holds its money: somebody may still find out what it cost.
local function is_of_use(record)
  local parts = words(record or '')
  if parts[1] == 'orphaned' then
    for i = 3, #parts do
      if redis.call('HGET', LEDGER, parts[i]) then
        return true
      end
    end
  end
  return false
end

-- Do at most `most` of what is due; whether there was anything.
local function reap(most)
  local due = redis.call('ZRANGEBYSCORE', DUE, '-inf', now_text, 'LIMIT', '0', most)
  for _, member in ipairs(due) do
    local name = string.sub(member, 2)
    if string.sub(member, 1, 1) == 'm' then
      redis.call('HDEL', LEDGER, name)
      redis.call('ZREM', DUE, member)
    else
      local record = redis.call('HGET', CALLS, name)
      if record and string.sub(record, 1, 5) == 'open ' then
        orphan(name, record)
      elseif is_of_use(record) then
        redis.call('ZADD', DUE, text(now + ORPHAN_KEPT), member)
      else
        redis.call('HDEL', CALLS, name)
        redis.call('ZREM', DUE, member)
      end
    end
  end
  return #due > 0
end

local function reply(status, first, second)
  local adjusts = redis.call('HGET', LEDGER, 'adjusts') or '0'
  return {status, now_text, text(wall), table.concat(orphans, ' '), adjusts, first or '', second or ''}
end

local function add(answer, field, packed, clients)
  answer[#answer + 1] = field
  answer[#answer + 1] = packed
  answer[#answer + 1] = clients or ''
end

-- The windows the caller knows of one counter, as `counter start end next_end`, an empty end for never: which of the
-- two it is, by the server's time; nil when it is neither. A window never moves backwards: `wall` is the latest
-- second that ever chose one.
local function read_windows()
  return {counter = take(), first = take(), second = take(), last = take()}
end

local function window(known)
  if known.second == '' then
    return known.counter .. '|' .. known.first .. '|'
  elseif wall >= tonumber(known.first) and wall < tonumber(known.second) then
    return known.counter .. '|' .. known.first .. '|', tonumber(known.second)
  elseif wall >= tonumber(known.second) and wall < tonumber(known.last) then
    return known.counter .. '|' .. known.second .. '|', tonumber(known.last)
  end
end

-- In front of every script, before the parts it names in scripts.py: the keys, the time, and what a reply is. A script
-- runs as a whole each time, and makes each function anew: what few need is in a part of its own.
--
-- KEYS  1 hash    the ledger: epoch, schema, salt, paused, turned, wall, until, restored, how often a clock set back
--                   has moved claims of rates, and one field an account, and who was first to ask for a name
--       2 hash    records by reservation id, and the ids of late charges
--       3 zset    what is due when (microseconds): r<id> a lease or a record, m<field> a past account
--       4 zset    slots of everybody: id by the end of its lease
--       5 zset    records that no journal has yet, by the microsecond in which they were written
-- ARGV  1 the epoch the caller knows, 2 the time: empty for the server's own, in tests "<seconds> <microseconds>",
--       3 the number of the question
-- Reply status, the number of the question, microseconds, window seconds, ids orphaned just now, how often something
--       was changed by hand, two values of the script, then accounts as field, parts, clients with money in that window.
--
-- Amounts come and go as text. `..`, tostring and cjson turn 1e14 into an exponent, some servers also 1e8, so a
-- number becomes text through '%d' alone, which is exact up to 2^53 (open.lua refuses a server where it is not) and takes
-- half of the time of '%.0f'.
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

local argument = 3
local function take()
  argument = argument + 1
  return ARGV[argument]
end

local function text(number)
  return string.format('%d', number)
end

local now_text = text(now)

-- Redis 6.2 does not know the allow-oom flag. There, a script that has begun to write with a command that takes no
-- memory may go on when memory is full.
local function write_even_when_full()
  redis.call('ZREM', DUE, '')
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

-- What every reply says: the ids orphaned just now, and how often something was changed by hand, where a script has
-- read that already.
local orphans, adjusts = {}, nil

local function reply(status, first, second)
  local changed = adjusts or redis.call('HGET', LEDGER, 'adjusts') or '0'
  return {status, ARGV[3], now_text, text(wall), table.concat(orphans, ' '), changed, first or '', second or ''}
end

-- What an account is, and in which window.
--
-- An account is "settled kept open orphaned overrun" under <counter>|<window start>|a for everybody, |c|<client> for
-- a client, |o for the clients who find the map full; |n counts the clients with money.
local NOTHING = '0 0 0 0 0'

local function account(packed)
  local s, k, o, h, x = string.match(packed or NOTHING, '^(%d+) (%d+) (%d+) (%d+) (%d+)$')
  return {
    settled = tonumber(s), kept = tonumber(k), open = tonumber(o), orphaned = tonumber(h), overrun = tonumber(x)
  }
end

local function pack(a)
  return string.format('%d %d %d %d %d', a.settled, a.kept, a.open, a.orphaned, a.overrun)
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

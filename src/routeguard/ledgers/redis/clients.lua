-- The map of the clients with money. Needs accounts.

local function total(a)
  return a.settled + a.kept + a.open + a.orphaned
end

-- `<counter>|<window start>|` of a client's account; nil for everybody's and for the overflow client's.
local function window_of_client(field)
  return string.match(field, '^([^|]*|[^|]*|[^|]*|[^|]*|)c|')
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

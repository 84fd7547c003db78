-- The places in the rates of a reservation that nobody was admitted by; reserve.lua says what the logs are.

-- Take its claim out of each log, where it is sure to stand as it was written; a log keeps its time to live.
local function give_places_back(record, keys, kinds)
  -- Moved by a clock that was set back, it is counted elsewhere: to take out another would admit somebody early.
  if record.moved ~= (redis.call('HGET', LEDGER, 'moved') or '0') then
    return
  end
  local claimed = record.claimed

  local function number(log, from, digits)
    return tonumber(string.sub(log, from, from + digits - 1))
  end

  local function without_entry(log)
    local entry = string.format('%016d', claimed)
    for from = #log - 15, 1, -16 do
      if string.sub(log, from, from + 15) == entry then
        return string.sub(log, 1, from - 1) .. string.sub(log, from + 16)
      end
    end
  end

  local function with_one_less(log)
    for from = #log - 41, 11, -42 do
      if number(log, from, 16) <= claimed and claimed <= number(log, from + 16, 16) then
        local total, count = number(log, 1, 10) - 1, number(log, from + 32, 10) - 1
        if total == 0 then
          return ''
        end
        local bucket = count > 0 and string.sub(log, from, from + 31) .. string.format('%010d', count) or ''
        return string.format('%010d', total) .. string.sub(log, 11, from - 1) .. bucket .. string.sub(log, from + 42)
      end
    end
  end

  local logs = redis.call('MGET', unpack(keys))
  for i, key in ipairs(keys) do
    local log = logs[i] and (kinds[i] == 'log' and without_entry or with_one_less)(logs[i])
    if log then
      redis.call('SET', key, log, 'KEEPTTL')
    end
  end
end

-- How a record is read, and written for the journal.

-- "open", "orphaned" or how it ended, its amount, and the fields of its accounts; kept apart, behind an @, the
-- microsecond in which it took its places in the rates, and how often claims had been moved by then.
local function words(record)
  local found = {}
  for word in string.gmatch(record, '%S+') do
    found[#found + 1] = word
  end
  local claimed, moved = string.match(found[#found] or '', '^@(%d+)%.(%d+)$')
  if claimed then
    found[#found], found.claimed, found.moved = nil, tonumber(claimed), moved
  end
  return found
end

-- Keep a record until the journal has it: "event id microseconds ceiling settled kept orphaned overrun", the fields of
-- the accounts that changed by it, and what the guard knows besides, a line each, which is never empty.
local function write_down(event, id, ceiling, changed, fields, note)
  local at = text(wall) .. string.format('%06d', now % SECOND)
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

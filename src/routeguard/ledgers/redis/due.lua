-- What is done when its time has come, by whatever script comes by. Needs accounts and records.

-- Do at most `most` of what is due; whether there was anything.
local function reap(most)
  local due = redis.call('ZRANGEBYSCORE', DUE, '-inf', now_text, 'LIMIT', '0', most)
  if #due == 0 then
    return false
  end

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
    redis.call('HSET', CALLS, id, 'orphaned' .. string.sub(record, #'open' + 1))
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
  return true
end

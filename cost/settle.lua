-- Ledger.Settle; without an id Ledger.Peek. See common.lua
-- for the keys and the first arguments.
--
-- ARGV[5]  the actual cost, from 0 to MaxUnits
--
-- Returns the state (capacity, refill, hourly, bucket, used, microseconds until the hour
-- ends or 0).

if id == '' then
  return answer(under(asked))
end

local s = inForce()
local estimate, floor, ends, hold = held()
if estimate then
  local actual = math.max(tonumber(ARGV[5]), floor)
  s.bucket = put(s.bucket, estimate - actual, s.capacity)
  if ends == s.hourEnds then
    local others = math.max(0, s.used - estimate)
    s.used = others + math.min(actual, maxSum - others)
  end
  write(s)
  redis.call('HDEL', account, ':' .. id)
  redis.call('ZREM', holds, hold .. ' ' .. id)
  expire(s)
end
return answer(s)

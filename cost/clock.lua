-- The time, in microseconds since 1970. Redis tells all gateways the same.
local function clock()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

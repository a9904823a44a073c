-- Ledger.Reserve. See common.lua for the keys and the first arguments.
--
-- ARGV[5]  maxInFlight
-- ARGV[6]  requestsPerMinute
-- ARGV[7]  the estimate, from 1 to the capacity
-- ARGV[8]  the floor, at most the estimate
-- ARGV[9]  the lease, in microseconds
--
-- Returns the state (capacity, refill, hourly, bucket, used, microseconds until the hour
-- ends or 0), the estimate, the limits that are violated with spaces between, and how
-- long to wait in two parts: from now, and from the clock to now.

local maxInFlight, perMinute = tonumber(ARGV[5]), tonumber(ARGV[6])
local estimate, floor, lease = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])

local was = held()
if was then
  return answer(under(asked), text(was), '', '0', '0')
end

local s = under(asked)

local violated = {}
local burst, hourly, inFlight, requests = s.bucket < estimate * micro, s.used > s.hourly - estimate, false, false
if maxInFlight > 0 and not fresh then
  inFlight = redis.call('ZCARD', holds) - #expired >= maxInFlight
end
if perMinute > 0 then
  requests = s.requests >= perMinute
end

if not (burst or hourly or inFlight or requests) then
  s.bucket = s.bucket - estimate * micro
  if s.hourEnds == 0 then
    s.hourEnds = now + hour
  end
  s.used = s.used + estimate
  l.hourEnds = s.hourEnds
  if perMinute > 0 then
    if now >= l.minuteEnds then
      l.minuteEnds = now + minute
    end
    l.requests = s.requests + 1
  end
  local expires = now + lease
  l.latest = math.max(l.latest, expires)
  local hold = text(estimate) .. ' ' .. text(floor) .. ' ' .. text(s.hourEnds)
  write(s, 'capacity', text(s.capacity), 'refill', text(s.refill), 'hourly', text(s.hourly),
    'hourEnds', text(l.hourEnds), 'minuteEnds', text(l.minuteEnds), 'requests', text(l.requests),
    'latest', text(l.latest), ':' .. id, text(expires) .. ' ' .. hold)
  redis.call('ZADD', holds, text(expires), hold .. ' ' .. id)
  expire(s)
  return answer(s, text(estimate), '', '0', '0')
end

-- A refusal. The wait is computed here and not by the gateway, which would need the
-- holds for it, of which there may be thousands. Here, only those are read whose leases
-- end before the wait does, and no more than some times as many besides: nearly always,
-- the first one's end is after it.

local read, all = {}, fresh -- of each, what parseHold takes
local function liveHold(i)
  if 2 * i > #read and not all then
    local have = #read / 2
    local some = math.max(1, 3 * have)
    local more = redis.call('ZRANGEBYSCORE', holds, '(' .. text(now), '+inf', 'WITHSCORES', 'LIMIT', have, some)
    all = #more < 2 * some
    for _, part in ipairs(more) do
      read[#read + 1] = part
    end
  end
  if 2 * i > #read then
    return nil
  end
  return parseHold(read[2 * i - 1], read[2 * i])
end

-- burstReady is in what time the bucket will hold the estimate, or the account is
-- forgotten, if that is earlier. When it could be, all holds have been looked at: it is
-- not before the last lease is over.
local function burstReady()
  local missing = estimate * micro - s.bucket
  local ready = ceilDiv(missing, s.refill)
  local bucket, last = l.bucket, 0
  for _, h in ipairs(expired) do
    bucket = put(bucket, h.back, l.capacity)
  end
  local i = 1
  local h = liveHold(i)
  while h do
    if h.expires - now >= ready then
      return ready
    end
    missing = missing - math.min(missing, h.back * micro)
    ready = math.max(h.expires - now, ceilDiv(missing, s.refill))
    bucket, last = put(bucket, h.back, l.capacity), h.expires
    i = i + 1
    h = liveHold(i)
  end
  local freshIn = math.max(l.hourEnds - now, l.minuteEnds - now, last - now,
    l.now - now + ceilDiv(l.capacity * micro - bucket, l.refill))
  return math.min(ready, freshIn)
end

-- hourReady is in what time the hourly total will have room for the estimate.
local function hourReady()
  local over = s.used + (estimate - s.hourly)
  local i = 1
  local h = liveHold(i)
  while h and h.expires < s.hourEnds do
    if h.hour == s.hourEnds then
      over = over - h.back
      if over <= 0 then
        return h.expires - now
      end
    end
    i = i + 1
    h = liveHold(i)
  end
  return s.hourEnds - now
end

local never, wait, behind = estimate > s.hourly, 0, now - clocked
if burst then
  violated[#violated + 1] = 'burst'
  wait = never and 0 or burstReady()
end
if hourly then
  violated[#violated + 1] = 'hour'
  wait = never and 0 or math.max(wait, hourReady())
end
if inFlight then
  violated[#violated + 1] = 'in_flight'
  wait = math.max(wait, micro - behind)
end
if requests then
  violated[#violated + 1] = 'requests'
  wait = math.max(wait, l.minuteEnds - now)
end
if never then
  wait, behind = 0, 0
end
return answer(s, text(estimate), table.concat(violated, ' '), text(wait), text(behind))

-- An account, as cost.Ledger has it; read that first. The names are the same.
--
-- KEYS[1]  the account, a hash: now; capacity, refill and hourly of the tier in force;
--          bucket, hourEnds, used, minuteEnds, requests; latest, which no lease ends
--          after; and for each hold a field ":ID" with "EXPIRES ESTIMATE FLOOR HOUR"
-- KEYS[2]  its holds, a sorted set by the end of their leases: "ESTIMATE FLOOR HOUR ID"
-- ARGV[1]  the id of a reservation
-- ARGV[2]  capacity,
-- ARGV[3]  refill per second and
-- ARGV[4]  hourly total of the request's tier
--
-- All is read and computed before anything is written, and the first command that
-- writes is one that needs memory: what Redis refuses, it refuses as a whole.
--
-- What stands there may have been written by somebody else. A number that no account could
-- have is an error before anything is computed with it.
--
-- Numbers are doubles, exact up to 2^53. All here are integers, and compared before a
-- sum or a product could get there; a full bucket nearly does. What is further away than
-- any clock of today can say is only ever expressed as time from now.

local micro, hour, minute = 1000000, 3600000000, 60000000
local maxUnits, maxLease = 9000000000, 31536000000000 -- the latter is a year
local maxSum = 9007199254740991 -- 2^53 - 1

local account, holds, id = KEYS[1], KEYS[2], ARGV[1]
local asked = {capacity = tonumber(ARGV[2]), refill = tonumber(ARGV[3]), hourly = tonumber(ARGV[4])}

-- text writes a number with all its digits; tostring would write 1e+15.
local function text(x)
  return string.format('%.0f', x)
end

-- ceilDiv divides and rounds up. Every step of it is exact.
local function ceilDiv(a, b)
  local rest = math.fmod(a, b)
  local quotient = (a - rest) / b
  if rest > 0 then
    return quotient + 1
  end
  return quotient
end

-- put adds units, which may be negative, to a bucket and keeps it within 0 and full.
local function put(bucket, units, capacity)
  local full = capacity * micro
  if units * micro >= full - bucket then
    return full
  end
  return math.max(0, bucket + units * micro)
end

-- within reads an integer that is not below the one and not above the other.
local function within(least, most, written)
  local x = tonumber(written)
  if not x or x < least or x > most or x % 1 ~= 0 then
    error('not an account')
  end
  return x
end

local function parseHold(member, expires)
  local estimate, floor, ends, name = string.match(member, '^(%d+) (%d+) (%d+) (.*)$')
  estimate = within(1, maxUnits, estimate)
  return {
    id = name,
    back = estimate - math.max(1, within(0, estimate, floor)),
    hour = within(0, maxSum, ends),
    expires = tonumber(expires),
  }
end

-- The account, and the time, which stands still after a step back.

local field = redis.call('HMGET', account, 'now', 'capacity', 'refill', 'hourly', 'bucket',
  'hourEnds', 'used', 'minuteEnds', 'requests', 'latest', ':' .. id)
local known = field[1] ~= false
local l = {now = 0, hourEnds = 0, used = 0, minuteEnds = 0, requests = 0, latest = 0}
if known then
  l.now = within(0, maxSum, field[1])
  l.capacity = within(1, maxUnits, field[2])
  l.refill = within(1, l.capacity, field[3])
  l.hourly = within(1, maxUnits, field[4])
  l.bucket = within(0, maxUnits * micro, field[5])
  l.hourEnds = within(0, l.now + hour, field[6])
  l.used = within(0, maxSum, field[7])
  l.minuteEnds = within(0, l.now + minute, field[8])
  l.requests = within(0, maxUnits, field[9])
  l.latest = within(0, l.now + maxLease, field[10])
  l.hold = field[11]
end
local clocked = clock()
local now = math.max(clocked, l.now)

-- The holds whose leases are over. It is asked for also of an account that is not known,
-- so that a key of another type is found out before anything is written.
local expired = {}
for i, member in ipairs(redis.call('ZRANGEBYSCORE', holds, '-inf', text(now))) do
  if known then
    expired[i] = parseHold(member)
  end
end

-- isFresh: FreshAt is not after now.
local function isFresh()
  if not known then
    return true
  end
  if now < l.hourEnds or now < l.minuteEnds or redis.call('ZCARD', holds) > #expired then
    return false
  end
  local bucket = l.bucket
  for _, h in ipairs(expired) do
    bucket = put(bucket, h.back, l.capacity)
  end
  return now - l.now >= ceilDiv(l.capacity * micro - bucket, l.refill)
end

local fresh = isFresh()

-- under computes the state under a tier.
local function under(tier)
  local full = tier.capacity * micro
  local s = {capacity = tier.capacity, refill = tier.refill, hourly = tier.hourly,
    bucket = full, hourEnds = 0, used = 0, requests = 0}
  if fresh then
    return s
  end
  local elapsed = now - l.now
  if l.bucket < full and elapsed < ceilDiv(full - l.bucket, tier.refill) then
    s.bucket = l.bucket + elapsed * tier.refill
  end
  if now < l.hourEnds then
    s.hourEnds, s.used = l.hourEnds, l.used
  end
  if now < l.minuteEnds then
    s.requests = l.requests
  end
  for _, h in ipairs(expired) do
    s.bucket = put(s.bucket, h.back, tier.capacity)
    if h.hour == s.hourEnds then
      s.used = math.max(0, s.used - h.back)
    end
  end
  return s
end

-- inForce computes the state under the tier in force.
local function inForce()
  if fresh then
    return under(asked)
  end
  return under(l)
end

-- held finds the hold of this id, if its lease is not over: its estimate and floor, the
-- end of its hour, and all three as they are written.
local function held()
  if not l.hold then
    return nil
  end
  local expires, hold = string.match(l.hold, '^(%d+) (.*)$')
  if within(0, l.latest, expires) <= now then
    return nil
  end
  local estimate, floor, ends = string.match(hold, '^(%d+) (%d+) (%d+)$')
  estimate = within(1, maxUnits, estimate)
  return estimate, within(0, estimate, floor), within(0, maxSum, ends), hold
end

-- write makes state s the account's, and sets more fields.
local function write(s, ...)
  if s.hourEnds ~= 0 then
    l.used = s.used
  end
  redis.call('HSET', account, 'now', text(now), 'bucket', text(s.bucket), 'used', text(l.used), ...)
  if not known then
    redis.call('DEL', holds) -- of an account that was lost
  elseif #expired > 0 then
    redis.call('ZREMRANGEBYSCORE', holds, '-inf', text(now))
    for _, h in ipairs(expired) do
      if h.id ~= id then -- else it is held anew
        redis.call('HDEL', account, ':' .. h.id)
      end
    end
  end
end

-- expire lets Redis forget the account when it is fresh for certain. That is a moment,
-- not a span: after a step back of the clock the keys are there as long as they count.
local function expire(s)
  local fullIn = ceilDiv(s.capacity * micro - s.bucket, s.refill)
  local at = math.max(ceilDiv(now, 1000) + ceilDiv(fullIn, 1000),
    ceilDiv(math.max(l.hourEnds, l.minuteEnds, l.latest), 1000))
  redis.call('PEXPIREAT', account, text(at))
  redis.call('PEXPIREAT', holds, text(at))
end

-- answer returns what the script was asked, and the state.
local function answer(s, ...)
  local reply = {text(s.capacity), text(s.refill), text(s.hourly), text(s.bucket), text(s.used), '0', ...}
  if s.hourEnds ~= 0 then
    reply[6] = text(s.hourEnds - now)
  end
  return reply
end

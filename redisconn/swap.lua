-- Stores a value in the place of one that begins with a given prefix.
--
-- KEYS[1]  the key
-- ARGV[1]  what the value that is there must begin with; not empty
-- ARGV[2]  the new value
-- ARGV[3]  milliseconds until it is over
--
-- Returns 1 when the new value is there, 0 when another one is, or none.

local there = redis.call('GETRANGE', KEYS[1], 0, #ARGV[1] - 1)
if there == ARGV[1] then
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
  return 1
end
-- The connection may have broken before the answer of an attempt arrived. That
-- attempt is made again, and finds what it stored.
if there == string.sub(ARGV[2], 1, #ARGV[1]) then
  return 1
end
return 0

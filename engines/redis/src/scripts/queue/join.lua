-- Appends the claim or finds its place, and looks.
-- ARGV 2 TTL in ms, 3 weight, 4 limit, 5 shape, 6 '<channel> <demand> <holder>'
-- Replies {place, standing, look in ms}, or {the ruling shape}, or {} if the claim has left already.
if mine then
  if mine == LEFT then return {} end
  -- Written again without a change: a WAIT that follows on another connection must have something to wait for.
  redis.call('HSET', queue, ARGV[1], mine)
  local place = tonumber(string.match(mine, '^%d+ (%d+)'))
  return {place, standing(ARGV[1])}
end

local ttl_ms, weight = tonumber(ARGV[2]), tonumber(ARGV[3])
local idle = held == 0
if idle then
  limit, shape = tonumber(ARGV[4]), ARGV[5]
elseif shape ~= ARGV[5] then
  return {shape} -- Law 6
end

-- Law 8: the place is the token. It grows with the clock, and even without it.
local is_new = last == 0
last = math.max(last + 1, now)
local expires_at = now + ttl_ms * 1000
due = math.min(due or expires_at, expires_at)
local fits = waiting == 0 and held + weight <= limit
if fits then
  held = held + weight
else
  redis.call('ZADD', waiters, last, ARGV[1])
  waiting = waiting + 1
  outlive(waiters, waiting == 1, ttl_ms)
end
redis.call('HSET', queue, 'last', last, 'held', held, 'waiting', waiting, 'limit', limit, 'shape', shape, 'due', due,
  ARGV[1], string.format('%s %.0f %s', ARGV[3], last, ARGV[6]))
redis.call('ZADD', expiries, expires_at, ARGV[1])
outlive(queue, is_new, ttl_ms)
outlive(expiries, idle, ttl_ms)
if fits then return {last, 2, -1} end
return {last, 1, look_in(ARGV[1])}

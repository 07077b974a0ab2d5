-- Appends the claim or finds its place, and looks.
-- Replies {place, standing, look in ms}, or {the ruling shape}, or {} if the claim has left already; or just the place, if
-- it is alone after all.
if mine then
  if mine == LEFT then return {} end
  -- Written again without a change: a WAIT that follows on another connection must have something to wait for.
  redis.call('HSET', queue, id, mine)
  local its_place = tonumber(string.match(mine, '^%d+ (%d+)'))
  return {its_place, standing(id)}
end

last = math.max(last + 1, now)
if not opened then
  redis.call('SET', KEYS[1], string.format('%016.0f %016.0f %s', last, now, ARGV[1]), 'PX', ARGV[2])
  return string.format('%.0f', last)
end

local ttl_ms, weight, its_shape, rest = string.match(ARGV[1], '^%S+ (%d+) (%d+) (%S+) (.*)$')
ttl_ms, weight = tonumber(ttl_ms), tonumber(weight)
if held == 0 then
  shape = its_shape
  limit = tonumber(string.match(shape, '%d+$'))
elseif shape ~= its_shape then
  return {shape} -- Law 6
end

dies_at(id, now + ttl_ms * 1000, ttl_ms)
local fits = waiting == 0 and held + weight <= limit
if fits then
  held = held + weight
else
  redis.call('ZADD', waiters, last, id)
  waiting = waiting + 1
  outlive(waiters, waiting == 1, ttl_ms)
end
redis.call('HSET', queue, 'last', last, 'held', held, 'waiting', waiting, 'shape', shape, 'due', due,
  id, string.format('%.0f %.0f %s', weight, last, rest))
open(ttl_ms)
if fits then return {last, 2, -1} end
return {last, 1, look_in(id)}

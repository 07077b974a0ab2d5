-- Enters a claim into the list of those who want to be woken, unless the lock is free here.
-- ARGV 1 channel, 2 id, 3 mode, 4 TTL in ms. Replies {} if the lock is free, else {PTTL in ms, and the
-- value if another client holds it}.
local kind = redis.call('TYPE', lock).ok
if kind == 'zset' then redis.call('ZREMRANGEBYSCORE', lock, '-inf', now_ms()) end
if redis.call('EXISTS', lock) == 0 then return {} end
redis.call('ZADD', waiting, 'NX', now_ms(), table.concat({ARGV[1], ARGV[2], ARGV[3]}, ' '))
local left_ms = redis.call('PTTL', lock)
redis.call('PEXPIRE', waiting, math.max(left_ms, 2 * ARGV[4]))
if kind == 'string' then
  local value = redis.call('GET', lock)
  if not read(value) then return {left_ms, value} end
end
return {left_ms}

-- Enters a claim into the list of those who want to be woken, unless the lock is free here.
-- ARGV 1 channel, 2 id, 3 mode, 4 TTL in ms. Replies {} if the lock is free, else {PTTL in ms, 1 if it is one of ours}.
local kind = redis.call('TYPE', lock).ok
if kind == 'zset' then redis.call('ZREMRANGEBYSCORE', lock, '-inf', now_ms) end
if redis.call('EXISTS', lock) == 0 then return {} end
redis.call('ZADD', waiting, 'NX', now_ms, table.concat({ARGV[1], ARGV[2], ARGV[3]}, ' '))
local left_ms = redis.call('PTTL', lock)
redis.call('PEXPIRE', waiting, math.max(left_ms, 2 * ARGV[4]))
local ours = 1
if kind == 'string' and not read(redis.call('GET', lock)) then ours = 0 end
return {left_ms, ours}

-- Renews a hold that is still there. Law 2: never takes the lock again.
-- ARGV 1 id, 2 TTL in ms, 3 how long the fence is remembered, in ms. Replies 1, or 0 if it is gone.
local mine, shared = hold_of(ARGV[1])
if not mine then return 0 end
local ttl_ms = tonumber(ARGV[2])
if shared then
  redis.call('ZADD', lock, now_ms + ttl_ms, mine)
  live(ttl_ms)
else
  redis.call('PEXPIRE', lock, ttl_ms)
end
redis.call('PEXPIRE', fence, ARGV[3])
return 1

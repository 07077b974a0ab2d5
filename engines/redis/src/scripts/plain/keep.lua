-- Renews holds that are still ours, and their fences. Law 2: never takes the lock again.
-- KEYS for each, lock and fence. ARGV for each, value and TTL in ms.
-- Replies for each 1, or 0 if it is gone.
local replies = {}
for i = 0, #KEYS / 2 - 1 do
  local lock, value, ttl_ms = KEYS[2 * i + 1], ARGV[2 * i + 1], ARGV[2 * i + 2]
  local present = redis.call('GET', lock)
  if present == value or present == value .. '*' then
    redis.call('PEXPIRE', lock, ttl_ms)
    redis.call('PEXPIRE', KEYS[2 * i + 2], ttl_ms + FENCE_MS)
    replies[i + 1] = 1
  else
    replies[i + 1] = 0
  end
end
return replies

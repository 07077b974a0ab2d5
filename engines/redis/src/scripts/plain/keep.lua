-- Renews holds that are still ours, and their fences. Law 2: never takes the lock again.
-- KEYS for each, lock and fence. ARGV for each, value, TTL in ms, how long the fence is remembered, in ms.
-- Replies for each 1, or 0 if it is gone.
local replies = {}
for i = 0, #KEYS / 2 - 1 do
  local lock, value = KEYS[2 * i + 1], ARGV[3 * i + 1]
  local present = redis.call('GET', lock)
  if present == value or present == value .. '*' then
    redis.call('PEXPIRE', lock, ARGV[3 * i + 2])
    redis.call('PEXPIRE', KEYS[2 * i + 2], ARGV[3 * i + 3])
    replies[i + 1] = 1
  else
    replies[i + 1] = 0
  end
end
return replies

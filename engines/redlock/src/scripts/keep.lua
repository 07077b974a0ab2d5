-- Renews holds that are still there. Law 2: never takes a lock again.
-- KEYS for each, the first three. ARGV for each, id, TTL in ms, how long the fence is remembered, in ms.
-- Replies for each 1, or 0 if it is gone, or 2 if somebody asks for it to be released.
local replies = {}
for i = 1, #KEYS, 3 do
  use(i)
  local mine, shared = hold_of(ARGV[i])
  local ttl_ms = tonumber(ARGV[i + 1])
  if mine then
    if shared then
      redis.call('ZADD', lock, now_ms() + ttl_ms, mine)
      live(ttl_ms)
    else
      redis.call('PEXPIRE', lock, ttl_ms)
    end
    redis.call('PEXPIRE', fence, ARGV[i + 2])
  end
  replies[#replies + 1] = mine and (is_asked(mine) and 2 or 1) or 0
end
return replies

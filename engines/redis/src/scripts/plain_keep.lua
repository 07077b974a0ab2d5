-- Renews holds of the style 'plain'. Law 2: never takes a lock again.
-- KEYS for each, the lock. ARGV for each, id and TTL in ms. Replies for each 1, or 0 if it is gone,
-- or 2 if somebody asks for it to be released (plain_ask.lua).
local replies = {}
for i = 1, #KEYS do
  local id, ttl_ms = ARGV[2 * i - 1], ARGV[2 * i]
  local present = redis.call('GET', KEYS[i])
  if present and string.match(present, '^%S+') == id then
    redis.call('PEXPIRE', KEYS[i], ttl_ms)
    replies[i] = string.sub(present, -2) == ' ?' and 2 or 1
  else
    replies[i] = 0
  end
end
return replies

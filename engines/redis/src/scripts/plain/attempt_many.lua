-- Takes the free ones of many locks, at one time for all. KEYS for each, lock and fence.
-- ARGV for each, value, TTL in ms, how long the fence is remembered, in ms
-- Replies for each its token, or nothing if the lock is not free.
local now, tokens = time(), {}
for i = 0, #KEYS / 2 - 1 do
  local holder = redis.pcall('SET', KEYS[2 * i + 1], ARGV[3 * i + 1], 'PX', ARGV[3 * i + 2], 'NX', 'GET')
  tokens[i + 1] = not holder and raise(KEYS[2 * i + 2], now, ARGV[3 * i + 3])
end
return tokens

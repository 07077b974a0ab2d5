-- Renews holds of Redisson's locks. Law 2: never takes a lock again.
-- KEYS for each, lock, note and timeout (redisson_attempt.lua). ARGV for each, field and TTL in ms.
-- Replies for each 1, or 0 if it is gone, or 2 if somebody asks for it to be released (redisson_ask.lua).
local replies = {}
for i = 1, #KEYS / 3 do
  local lock, note, timeout = KEYS[3 * i - 2], KEYS[3 * i - 1], KEYS[3 * i]
  local field, ttl_ms = ARGV[2 * i - 1], tonumber(ARGV[2 * i])
  -- The key may be of another type by now.
  local present = redis.pcall('HMGET', lock, 'mode', field, field .. ':write')
  local is_reader = present[1] and present[2]
  if present.err or not (present[2] or present[3]) then
    replies[i] = 0
  else
    -- A reader must not end the others' holds.
    local left_ms = is_reader and redis.call('PTTL', lock) or 0
    redis.call('PEXPIRE', lock, math.max(left_ms, ttl_ms))
    redis.call('PEXPIRE', note, ttl_ms)
    if is_reader then redis.call('SET', timeout, '1', 'PX', ttl_ms) end
    replies[i] = string.sub(redis.call('GET', note) or '', -2) == ' ?' and 2 or 1
  end
end
return replies

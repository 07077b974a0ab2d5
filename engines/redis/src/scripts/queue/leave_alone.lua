-- Leaves a lock that nobody else has or wants: only the last place stays.
-- KEYS 1 queue. ARGV 1 id
local lone = redis.call('HGET', KEYS[1], 'sole')
if lone and string.sub(lone, 1, #ARGV[1]) == ARGV[1] then
  redis.call('HDEL', KEYS[1], 'sole')
  return 1
end


return freed
end
local lock = redis.call('GET', KEYS[1])
if lock and string.sub(lock, 35, 66) == ARGV[1] then
  redis.call('SET', KEYS[1], string.sub(lock, 1, 16), 'KEEPTTL')
  return 1
end
local clock = redis.call('TIME')
local id = ARGV[1]


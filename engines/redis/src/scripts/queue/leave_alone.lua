-- KEYS 1 lock, or all four as in state. ARGV 1 id, 2 its place, if one key is given
-- Replies 1, or nothing if the claim is not alone there and only that key was given.
if not KEYS[2] then return free_alone(KEYS[1], ARGV[1], ARGV[2]) end
local lock = redis.call('GET', KEYS[1])
if lock and string.sub(lock, 35, 66) == ARGV[1] then
  redis.call('SET', KEYS[1], string.sub(lock, 1, 16), 'KEEPTTL')
  return 1
end
local clock = redis.call('TIME')
local id = ARGV[1]


-- Leaves a lock that nobody else has or wants: only the last place stays. With one key only it writes first and looks then.
-- KEYS 1 lock, or all four as in state. ARGV 1 id, 2 its place, if one key is given
-- Replies 1, or nothing if the claim is not alone there and only that key was given.
local lock
if KEYS[2] then
  lock = redis.call('GET', KEYS[1])
else
  lock = redis.call('SET', KEYS[1], ARGV[2], 'KEEPTTL', 'GET')
end
if lock and string.sub(lock, 35, 66) == ARGV[1] then
  if KEYS[2] then redis.call('SET', KEYS[1], string.sub(lock, 1, 16), 'KEEPTTL') end
  return 1
end
if not KEYS[2] then
  if lock then redis.call('SET', KEYS[1], lock, 'KEEPTTL') else redis.call('DEL', KEYS[1]) end
  return false
end
local clock = redis.call('TIME')
local id = ARGV[1]


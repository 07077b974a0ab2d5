-- Frees the lock if it is ours, and wakes one who waits. Whoever waits has put a '*' behind the value: without it, one key
-- and two calls are enough.
-- KEYS 1 the lock, 2 waiting, or not. ARGV 1 value, 2 '1' if PUBLISH counts every listener, 3 its own entry in waiting
-- Replies 1 if the lock was ours, 0 if not, or nothing if somebody waits and only the lock's key was given.
local value = redis.call('GET', KEYS[1])
if value == ARGV[1] then
  redis.call('DEL', KEYS[1])
  return 1
end
if value ~= ARGV[1] .. '*' then return 0 end
if not KEYS[2] then return false end
redis.call('DEL', KEYS[1])

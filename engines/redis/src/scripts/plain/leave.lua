-- Frees the lock if it is ours, and wakes one who waits.
-- KEYS 1 the lock, 2 waiting. ARGV 1 value, 2 '1' if PUBLISH counts every listener, 3 its own entry in waiting
-- Replies 1 if the lock was ours, 0 if not.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1])
wake(KEYS[1], KEYS[2], ARGV[2], ARGV[3])
return 1

-- Renews a hold that is still ours, and its fence. Law 2: never takes the lock again.
-- KEYS 1 the lock, 2 fence. ARGV 1 value, 2 TTL in ms, 3 how long the fence is remembered, in ms. Replies 1, or 0 if it is gone.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('PEXPIRE', KEYS[2], ARGV[3])
return 1

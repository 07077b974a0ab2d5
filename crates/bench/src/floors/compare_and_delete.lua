-- Frees the lock if it is still ours: what every guide to SET NX PX recommends.
if redis.call('GET', KEYS[1]) == ARGV[1] then
    return redis.call('DEL', KEYS[1])
end
return 0

-- Shows a lock. KEYS 1 the lock, 2 fence. Replies {value, ms left or below 0, token or false}, or {} if it is free.
local value = redis.call('GET', KEYS[1])
if not value then return {} end
return {value, redis.call('PTTL', KEYS[1]), redis.call('GET', KEYS[2])}

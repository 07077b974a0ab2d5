-- Shows a lock of the style 'plain'. KEYS 1 lock. Replies {value, ms left or below 0}, or {} if it is free.
local present = redis.call('GET', KEYS[1])
if not present then return {} end
return {present, redis.call('PTTL', KEYS[1])}

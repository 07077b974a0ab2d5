-- Shows a lock of the style 'plain'. KEYS 1 lock. Replies {value, ms left or below 0, us since the grant or below 0}, or {} if
-- it is free. The token of ours is the time of the grant, unless the server's clock was set back.
local present = redis.call('GET', KEYS[1])
if not present then return {} end
local clock, token = redis.call('TIME'), string.match(present, '^%x+ (%d+) ')
local age = token and math.max(0, clock[1] * 1000000 + clock[2] - token) or -1
return {present, redis.call('PTTL', KEYS[1]), age}

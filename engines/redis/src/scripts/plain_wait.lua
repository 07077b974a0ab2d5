-- Enters a claim into the list of those that a release of a 'plain' lock wakes, unless the lock is free.
-- KEYS 1 lock, 2 waiting ZSET '<channel> <id>' -> since when. ARGV 1 '<channel> <id>', 2 TTL in ms
-- Replies {} if the lock is free, else {how long the hold can last at most in ms, 1 if a lockkeeper holds it, the value}.
local present = redis.call('GET', KEYS[1])
if not present then return {} end
local clock = redis.call('TIME')
redis.call('ZADD', KEYS[2], 'NX', clock[1] * 1000000 + clock[2], ARGV[1])
local left_ms = redis.call('PTTL', KEYS[1])
-- A list that nobody renews expires with the waits it was for.
redis.call('PEXPIRE', KEYS[2], math.max(left_ms, 2 * ARGV[2]))
return {left_ms, string.find(present, '^%x+ %d+ {') and 1 or 0, present}

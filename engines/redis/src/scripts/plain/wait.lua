-- Enters a claim into the list of those who want to be woken, unless the lock is free by now.
-- KEYS 1 the lock, 2 waiting: ZSET '<channel> <claim id>' -> since when
-- ARGV 1 '<channel> <claim id>', 2 TTL in ms
-- Replies {} if the lock is free, else {how long the hold can last at most in ms, 1 if one of us holds it, its value}.
local holder = redis.call('GET', KEYS[1])
if not holder then return {} end
local clock = redis.call('TIME')
redis.call('ZADD', KEYS[2], 'NX', clock[1] * 1000000 + clock[2], ARGV[1])
local left_ms = redis.call('PTTL', KEYS[1])
-- A list that nobody renews goes away with the waits it was for.
redis.call('PEXPIRE', KEYS[2], math.max(left_ms, 2 * ARGV[2]))
mark(KEYS[1], holder)
return {left_ms, is_ours(holder) and 1 or 0, holder}

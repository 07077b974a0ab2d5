-- Takes a free lock, or finds that it is ours already.
-- KEYS 1 the lock: a string, as every other client of plain Redis locks writes it
--      2 fence: the last token
--      3 waiting, if somebody is likely to wait
-- ARGV 1 value, 2 TTL in ms, 3 anything if the fence must follow the clock
-- Replies the token, or {how long the hold can last at most in ms, or below 0 if nobody knows}.
local now
local lock, fence, value, ttl_ms, by_clock = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3]

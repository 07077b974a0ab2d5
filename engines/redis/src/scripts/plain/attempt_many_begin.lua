-- Takes the free ones of many locks, at one time for all. KEYS for each, lock and fence.
-- ARGV for each, value, TTL in ms, how long the fence is remembered, in ms
-- Replies for each its token, or nothing if the lock is not free.
local now
local tokens = {}
for i = 1, #KEYS / 2 do
local lock, fence = KEYS[2 * i - 1], KEYS[2 * i]
local value, ttl_ms, fence_ms = ARGV[3 * i - 2], ARGV[3 * i - 1], ARGV[3 * i]

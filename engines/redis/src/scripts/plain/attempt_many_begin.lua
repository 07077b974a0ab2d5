-- Takes the free ones of many locks, at one time for all. KEYS for each, lock and fence.
-- ARGV 1 what stands behind the id in each value, 2 TTL in ms, 3 '1' if the fences must follow the clock; then for each, its id
-- Replies for each its token, or nothing if the lock is not free.
local now
local rest, ttl_ms, by_clock = ARGV[1], ARGV[2], ARGV[3] == '1'
local tokens = {}
for i = 1, #KEYS / 2 do
local lock, fence, value = KEYS[2 * i - 1], KEYS[2 * i], ARGV[i + 3] .. rest

-- The short way to many locks, at one time for all: places must differ within a lock only.
-- KEYS the locks. ARGV 1 what stands behind the id in each claim, 2 for how many ms the locks' keys live; then for each, its id
-- Replies for each its place, or nothing if the lock is in use.
local head, tail, life_ms = place .. ' ' .. place .. ' ', ARGV[1], ARGV[2]
local replies = {}
for i = 1, #KEYS do
local lock, text = KEYS[i], head .. ARGV[i + 2] .. tail

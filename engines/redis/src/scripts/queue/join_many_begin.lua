-- The short way to many locks, at one time for all: places must differ within a lock only.
-- KEYS the locks. ARGV for each, the claim as for a join, for how many ms the lock's key lives
-- Replies for each its place, or nothing if the lock is in use.
local replies = {}
for i = 1, #KEYS do
local lock, claim, life_ms = KEYS[i], ARGV[2 * i - 1], ARGV[2 * i]

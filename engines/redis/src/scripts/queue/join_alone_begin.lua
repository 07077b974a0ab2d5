-- KEYS 1 lock, or all four as in state. ARGV 1 '<id> <TTL in ms> <weight> <shape> <channel> <demand> <holder>',
-- 2 for how many ms the lock's key lives
-- Replies the place, or nothing if the lock is in use and only its key was given.
if not KEYS[2] then
local lock, text, life_ms = KEYS[1], place .. ' ' .. place .. ' ' .. ARGV[1], ARGV[2]

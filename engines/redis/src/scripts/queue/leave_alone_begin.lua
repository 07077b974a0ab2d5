-- KEYS 1 lock, or all four as in state. ARGV 1 id, 2 its place, if one key is given
-- Replies 1, or nothing if the claim is not alone there and only that key was given.
if not KEYS[2] then
local lock, id, place = KEYS[1], ARGV[1], ARGV[2]

-- The short way from many locks. KEYS the locks. ARGV for each, id, its place
-- Replies for each 1, or nothing if the claim is not alone there.
local replies = {}
for i = 1, #KEYS do
local lock, id, place = KEYS[i], ARGV[2 * i - 1], ARGV[2 * i]

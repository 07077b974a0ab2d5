-- The same for many locks, at one time for all: what makes a place is that the same lock has no other as late.
-- KEYS the locks. ARGV for each, the claim as for a join, for how many ms the lock's key lives
-- Replies for each its place, or nothing if the lock is in use.
local places = {}
for i = 1, #KEYS do
  places[i] = take_alone(KEYS[i], ARGV[2 * i - 1], ARGV[2 * i])
end
return places

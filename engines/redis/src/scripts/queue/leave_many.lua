-- The same for many locks. KEYS the locks. ARGV for each, id, its place
-- Replies for each 1, or nothing if the claim is not alone there.
local replies = {}
for i = 1, #KEYS do
  replies[i] = free_alone(KEYS[i], ARGV[2 * i - 1], ARGV[2 * i])
end
return replies

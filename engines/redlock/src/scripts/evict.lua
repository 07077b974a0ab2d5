-- Frees this node from a claim of ours, or from another client's whose value is just that id.
-- ARGV 1 id. Replies 1 if it was here, 0 if not.
local mine, shared = hold_of(ARGV[1])
if not mine and redis.call('TYPE', lock).ok == 'string' and redis.call('GET', lock) == ARGV[1] then
  mine, shared = ARGV[1], false
end
if not mine then return 0 end
remove(mine, shared)
return 1

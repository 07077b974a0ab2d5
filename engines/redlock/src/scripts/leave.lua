-- Frees this node from the claim: all of it, or just what one attempt left here.
-- ARGV 1 id, 2 attempt, or 0 for any, 3 TTL in ms. Replies 1 if it was here, 0 if not.
local mine, shared = hold_of(ARGV[1])
local attempt = tonumber(ARGV[2])
if not mine then
  -- The attempt of a claim that is over may still be on its way.
  if attempt == 0 then redis.call('SET', KEYS[4], '1', 'PX', ARGV[3]) end
  return 0
end
local _, present = read(mine)
if attempt ~= 0 and attempt ~= present then return 0 end
remove(mine, shared)
return 1

-- Frees this node from the claim: all of it, or just what one attempt left here.
-- ARGV 1 id, 2 attempt, or 0 for any. Replies 1 if it was here, 0 if not.
local mine, shared = hold_of(ARGV[1])
if not mine then return 0 end
local _, present = read(mine)
local attempt = tonumber(ARGV[2])
if attempt ~= 0 and attempt ~= present then return 0 end
remove(mine, shared)
return 1

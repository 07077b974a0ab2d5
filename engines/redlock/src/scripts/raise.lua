-- The second round: requests this node to give the claim that number. It does so once for each number, and only while the
-- claim holds here: so two claims never have the same token, and the next claim's is larger.
-- ARGV 1 id, 2 number, 3 how long the fence is remembered, in ms. Replies {1} if so, else {0, the last number, or -1}.
if not hold_of(ARGV[1]) then return {0, -1} end
local wanted = tonumber(ARGV[2])
local last, owner = last_number()
if last > wanted or (last == wanted and owner ~= ARGV[1]) then return {0, last} end
redis.call('SET', fence, string.format('%.0f %s', wanted, ARGV[1]), 'PX', ARGV[3])
return {1}

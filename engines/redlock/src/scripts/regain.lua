-- Lets a claim in again that a majority of the nodes has: this node has restarted, or was away for longer than its TTL.
-- ARGV 1 id, 2 value, 3 mode, 4 TTL in ms, 5 how long the fence is remembered, in ms, 6 and 7 the largest number that the
-- majority has given, and to whom. Replies 1 if the claim is inside, else 0.
local id, value, mode, ttl_ms, wanted = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[6])

-- A claim that has left must not come in late.
if redis.call('EXISTS', KEYS[4]) == 1 then return 0 end
if hold_of(id) then return 1 end
if mode == 'shared' then
  if redis.call('TYPE', lock).ok == 'string' then return 0 end
  redis.call('ZADD', lock, now_ms() + ttl_ms, value)
  live(ttl_ms)
elseif not redis.call('SET', lock, value, 'NX', 'PX', ttl_ms) then
  return 0
end

-- The next claim's token must be larger, although this node may have forgotten its number and its clock may be behind.
if last_number() < wanted then
  redis.call('SET', fence, string.format('%.0f %s', wanted, ARGV[7]), 'PX', ARGV[5])
end
return 1

-- Renews claims of one lock. ARGV: pairs of id and TTL in ms.
-- Replies for each: standing (0 dead, 1 waits, 2 holds), look in ms. Law 2: never revives a dead claim.
local reply, longest_ms = {}, 0
for i = 1, #ARGV, 2 do
  local renewed, ttl_ms = ARGV[i], tonumber(ARGV[i + 1])
  local claim = mine
  if i > 1 then claim = opened and redis.call('HGET', queue, renewed) end
  if claim and claim ~= LEFT then
    local expires_at = now + ttl_ms * 1000
    redis.call('ZADD', expiries, expires_at, renewed)
    -- A fixed lease may end sooner.
    if expires_at < due then
      due = expires_at
      redis.call('HSET', queue, 'due', due)
    end
    longest_ms = math.max(longest_ms, ttl_ms)
    reply[i], reply[i + 1] = standing(renewed)
  else
    reply[i], reply[i + 1] = 0, -1
  end
end
if longest_ms > 0 then
  outlive(KEYS[1], false, longest_ms)
  outlive(queue, false, longest_ms)
  outlive(expiries, false, longest_ms)
  if waiting > 0 then outlive(waiters, false, longest_ms) end
end
return reply

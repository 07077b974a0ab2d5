-- Removes the claim, wherever it stands, and tells who fits now.
-- ARGV 2 TTL in ms for the mark of a claim that is not here, or 0; 3 'evict' if somebody else removes it
-- Replies 1 if it was here, 0 if not.
if not mine or mine == LEFT then
  local ttl_ms = tonumber(ARGV[2])
  if ttl_ms > 0 and not mine then
    -- Its join may still be on its way, from a connection that was given up. It must not be let in later.
    local expires_at = now + ttl_ms * 1000
    due = math.min(due or expires_at, expires_at)
    redis.call('HSET', queue, ARGV[1], LEFT, 'due', due)
    redis.call('ZADD', expiries, expires_at, ARGV[1])
    outlive(queue, last == 0, ttl_ms)
    outlive(expiries, held == 0, ttl_ms)
  end
  return 0
end

remove(ARGV[1], mine)
grant()
save()
if ARGV[3] == 'evict' then
  local channel = string.match(mine, '^%d+ %d+ (%S+)')
  redis.call('PUBLISH', channel, '-' .. ARGV[1])
end
return 1

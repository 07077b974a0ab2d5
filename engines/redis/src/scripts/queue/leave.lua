-- Removes the claim, wherever it stands, and tells who fits now.
-- ARGV 2 TTL in ms for the mark of a claim that is not here, or 0; 3 'evict' if somebody else removes it
-- Replies 1 if it was here, 0 if not.
if not mine or mine == LEFT then
  local ttl_ms = tonumber(ARGV[2])
  if ttl_ms > 0 and not mine then
    -- Its join may still be on its way, from a connection that was given up. It must not be let in later.
    dies_at(id, now + ttl_ms * 1000, ttl_ms)
    redis.call('HSET', queue, 'last', last, 'due', due, id, LEFT)
    open(ttl_ms)
  end
  return 0
end

remove(id, mine)
grant()
save()
if ARGV[3] == 'evict' then
  local channel = string.match(mine, '^%d+ %d+ (%S+)')
  redis.call('PUBLISH', channel, '-' .. id)
end
return 1

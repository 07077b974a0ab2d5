if token then
  if KEYS[3] and redis.call('EXISTS', KEYS[3]) == 1 then redis.call('APPEND', lock, '*') end
  return token
end
if holder == value or holder == value .. '*' then
  -- The reply was lost, and nobody else has raised the fence since. A WAIT that follows on another connection must
  -- have something to wait for.
  redis.call('PEXPIRE', lock, ttl_ms)
  return redis.call('GET', fence)
end
return {redis.call('PTTL', lock)}

-- Takes a free lock, or finds that it is ours already.
-- KEYS 1 the lock: a string, as every other client of plain Redis locks writes it
--      2 fence: the last token
--      3 waiting, if somebody is likely to wait
-- ARGV 1 value, 2 TTL in ms, 3 how long the fence is remembered, in ms
-- Replies the token as a text, or {how long the hold can last at most in ms, or below 0 if nobody knows}.
local holder = redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2], 'NX', 'GET')
if not holder then
  local token = raise(KEYS[2], time(), ARGV[3])
  if KEYS[3] and redis.call('EXISTS', KEYS[3]) == 1 then redis.call('APPEND', KEYS[1], '*') end
  return token
end
if holder == ARGV[1] or holder == ARGV[1] .. '*' then
  -- The reply was lost, and nobody else has raised the fence since. A WAIT that follows on another connection must
  -- have something to wait for.
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return redis.call('GET', KEYS[2])
end
return {redis.call('PTTL', KEYS[1])}

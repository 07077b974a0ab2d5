-- Takes a free lock of the style 'plain', or finds that the claim has it already.
-- KEYS 1 lock   STRING '<id> <token> <holder>'; other clients write what they like, and just as we do only if it is free
--      2 token  STRING the last token that this server has given, to any claim of any lock. It never expires.
--      3 left   exists if the claim has left before it arrived
-- ARGV 1 id, 2 holder, 3 TTL in ms
-- Replies the token, or {how long the hold can last at most in ms, or below 0 if unknown}.
local lock, id = KEYS[1], ARGV[1]

-- Law 8: max(last + 1, now). Numbers are compared as text, since Lua prints them slowly.
local clock = redis.call('TIME')
local token = clock[1] .. string.sub('00000' .. clock[2], -6)
local last = redis.call('SET', KEYS[2], token, 'GET')
if last and (#last > #token or (#last == #token and last >= token)) then
  token = string.format('%.0f', last + 1)
  redis.call('SET', KEYS[2], token)
end

local present = redis.call('SET', lock, id .. ' ' .. token .. ' ' .. ARGV[2], 'NX', 'PX', ARGV[3], 'GET')
if not present then
  if redis.call('EXISTS', KEYS[3]) == 0 then return token end
  redis.call('DEL', lock)
  return {-1}
end
local holder, its_token = string.match(present, '^(%x+) (%d+) ')
if holder == id then
  -- The reply to an earlier attempt was lost.
  redis.call('PEXPIRE', lock, ARGV[3])
  return its_token
end
return {redis.call('PTTL', lock)}

-- Takes a free lock of Redisson's, joins the readers of one, or finds that the claim holds already.
-- KEYS 1 lock     HASH '<uuid>:<thread>' -> hold count, expiring with the hold. A read-write lock has a field 'mode', 'read' or
--                 'write', besides; the field of its writer ends in ':write'.
--      2 token    STRING the last token that this server has given, to any claim of any lock. It never expires.
--      3 fence    STRING the last token of an RFencedLock of this name
--      4 left     exists if the claim has left before it arrived
--      5 note     STRING '<token> <holder>', expiring with the claim
--      6 timeout  STRING that expires with a reader's claim
--      7 queue    LIST of those that wait for an RFairLock of this name
-- ARGV 1 field, 2 holder, 3 TTL in ms, 4 mode: '' for an RLock, 'read' or 'write'; 5 '1' to begin a fence if there is none
-- Replies the token, {how long the hold can last at most in ms, or below 0 if unknown}, or {what the key is instead}.
local lock, field, ttl_ms, mode = KEYS[1], ARGV[1], tonumber(ARGV[3]), ARGV[4]
if mode == 'write' then field = field .. ':write' end

local kind = redis.call('TYPE', lock).ok
if kind ~= 'none' and kind ~= 'hash' then return {kind} end

local left_ms = 0
if kind == 'hash' then
  local present = redis.call('HMGET', lock, 'mode', field)
  local its_mode, count = present[1] or '', present[2]
  local is_lock = count or its_mode == 'read' or its_mode == 'write'
  if its_mode == '' and not count then
    is_lock = string.find(redis.call('HRANDFIELD', lock), '^%x+%-%x+%-%x+%-%x+%-%x+:%d+$')
  end
  if not is_lock then return {kind} end
  if (its_mode == '') ~= (mode == '') then return {its_mode == '' and 'RLock' or 'RReadWriteLock'} end
  left_ms = redis.call('PTTL', lock)
  if not count and (mode ~= 'read' or its_mode ~= 'read') then
    return redis.call('EXISTS', KEYS[7]) == 1 and {'RFairLock'} or {left_ms}
  end
  local its_token = count and string.match(redis.call('GET', KEYS[5]) or '', '^%d+')
  if its_token then
    -- The reply to an earlier attempt was lost.
    redis.call('PEXPIRE', KEYS[5], ttl_ms)
    if mode == 'read' then redis.call('SET', KEYS[6], '1', 'PX', ttl_ms) end
    redis.call('PEXPIRE', lock, mode == 'read' and math.max(left_ms, ttl_ms) or ttl_ms)
    return its_token
  end
end
if redis.call('EXISTS', KEYS[4], KEYS[7]) > 0 then
  return redis.call('EXISTS', KEYS[4]) == 1 and {-1} or {'RFairLock'}
end

-- Law 8: max(last + 1, now). Numbers are compared as text, since Lua prints them slowly.
local clock = redis.call('TIME')
local token = clock[1] .. string.sub('00000' .. clock[2], -6)
local fence = redis.call('GET', KEYS[3])
for _, last in pairs({redis.call('GET', KEYS[2]), fence}) do
  if last and (#last > #token or (#last == #token and last >= token)) then token = string.format('%.0f', last + 1) end
end
redis.call('SET', KEYS[2], token)
if fence or ARGV[5] == '1' then redis.call('SET', KEYS[3], token) end

redis.call('HSET', lock, field, '1')
if mode ~= '' then redis.call('HSET', lock, 'mode', mode) end
if mode == 'read' then redis.call('SET', KEYS[6], '1', 'PX', ttl_ms) end
redis.call('PEXPIRE', lock, math.max(left_ms, ttl_ms))
redis.call('SET', KEYS[5], token .. ' ' .. ARGV[2], 'PX', ttl_ms)
return token

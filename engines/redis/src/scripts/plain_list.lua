-- Shows a lock of the style 'plain'.
-- KEYS 1 lock
-- ARGV 1 how many bytes another client's value may have in a list of locks, or '' if the lock was asked for by its name
-- Replies {value, ms left or below 0, us since the grant or below 0}, or {} if it is free. The token of ours is the time of the
-- grant, unless the server's clock was set back.
-- A list does not show every string key: other clients' locks are short and expire. No value of ours is as long as the first
-- limit, so that a long one is not even read.
local longest = tonumber(ARGV[1])
if longest and redis.call('STRLEN', KEYS[1]) > 65536 then return {} end
local present = redis.call('GET', KEYS[1])
if not present then return {} end
local left_ms = redis.call('PTTL', KEYS[1])
local id, token = string.match(present, '^(%x+) (%d+) ')
if not id or #id ~= 32 then
  if longest and (#present > longest or left_ms < 0) then return {} end
  return {present, left_ms, -1}
end
local clock = redis.call('TIME')
return {present, left_ms, math.max(0, clock[1] * 1000000 + clock[2] - token)}

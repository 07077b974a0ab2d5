-- Takes a holder out of a lock of Redisson's, however often it has entered. If the lock is free then, says so as Redisson does.
-- KEYS 1 lock, 2 left, 3 note
-- ARGV 1 for how many ms a late attempt of the claim is kept out if it is not here, or 0
--      2 PUBLISH, or SPUBLISH in a Cluster
--      3 channel to which Redisson's clients and ours subscribe: '0' lets one of each client's waiters try, '1' all of them
--      4 what the keys of readers' timeouts begin with
--      5 and on: the fields
-- Replies 1 if the holder was there, else 0.
local lock, publish, channel, prefix = KEYS[1], ARGV[2], ARGV[3], ARGV[4]
local was_here, mode, was_writer = false, false, false
if redis.call('TYPE', lock).ok == 'hash' then
  mode = redis.call('HGET', lock, 'mode')
  for i = 5, #ARGV do
    local count = redis.call('HGET', lock, ARGV[i])
    if count then
      was_here = true
      was_writer = was_writer or string.find(ARGV[i], ':write$') ~= nil
      redis.call('HDEL', lock, ARGV[i])
      for hold = 1, mode and tonumber(count) or 0 do
        redis.call('DEL', prefix .. ARGV[i] .. ':rwlock_timeout:' .. hold)
      end
    end
  end
end
if not was_here then
  if ARGV[1] ~= '0' then redis.call('SET', KEYS[2], '1', 'PX', ARGV[1]) end
  return 0
end
redis.call('DEL', KEYS[3])
if not mode then
  redis.call(publish, channel, '0')
  return 1
end

-- The other readers decide how long the lock lives on; one that has not been renewed in time does not count.
local longest_ms = 0
for _, field in ipairs(redis.call('HKEYS', lock)) do
  local count = field ~= 'mode' and tonumber(redis.call('HGET', lock, field))
  for hold = 1, count or 0 do
    longest_ms = math.max(longest_ms, redis.call('PTTL', prefix .. field .. ':rwlock_timeout:' .. hold))
  end
end
if mode == 'write' and not was_writer then return 1 end
if longest_ms > 0 then
  redis.call('HSET', lock, 'mode', 'read')
  redis.call('PEXPIRE', lock, longest_ms)
else
  redis.call('DEL', lock)
end
if was_writer or longest_ms == 0 then redis.call(publish, channel, was_writer and '1' or '0') end
return 1

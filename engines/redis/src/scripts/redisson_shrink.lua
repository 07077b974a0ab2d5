-- Makes the writer of a read-write lock of Redisson's a reader, and lets the waiting readers try.
-- KEYS 1 lock, 2 timeout. ARGV 1 field, 2 PUBLISH, or SPUBLISH in a Cluster, 3 channel
-- Replies 1, or 0 if the claim is gone.
local lock, field = KEYS[1], ARGV[1]
if redis.call('TYPE', lock).ok ~= 'hash' then return 0 end
-- If the reply to an earlier call was lost, the claim is a reader by now.
if redis.call('HDEL', lock, field .. ':write') == 0 then return redis.call('HEXISTS', lock, field) end
redis.call('HSET', lock, 'mode', 'read', field, '1')
redis.call('SET', KEYS[2], '1', 'PX', math.max(redis.call('PTTL', lock), 1))
redis.call(ARGV[2], ARGV[3], '1')
return 1

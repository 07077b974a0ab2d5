-- Notes beside a lock of Redisson's that somebody asks for a claim of ours to be released: its note ends in ' ?' from then on.
-- KEYS 1 lock, 2 note (redisson_attempt.lua). ARGV 1 field. Replies 1, or 0 if the claim does not have the lock.
local present = redis.pcall('HMGET', KEYS[1], ARGV[1], ARGV[1] .. ':write')
local note = redis.call('GET', KEYS[2])
if present.err or not (present[1] or present[2]) or not note then return 0 end
if string.sub(note, -2) ~= ' ?' then redis.call('SET', KEYS[2], note .. ' ?', 'KEEPTTL') end
return 1

-- Notes in a lock of the style 'plain' that somebody asks for the claim to be released: its value ends in ' ?' from then on.
-- KEYS 1 lock. ARGV 1 id. Replies 1, or 0 if the claim does not have the lock.
local present = redis.call('GET', KEYS[1])
-- Another client's value is not touched: it would not know its own lock again.
if not present or string.match(present, '^(%x+) %d+ ') ~= ARGV[1] then return 0 end
if string.sub(present, -2) ~= ' ?' then redis.call('SET', KEYS[1], present .. ' ?', 'KEEPTTL') end
return 1

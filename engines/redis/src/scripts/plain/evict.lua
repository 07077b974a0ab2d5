-- Frees the lock if the claim of that id has it: one of ours, or another client's whose value is just that id.
-- KEYS 1 the lock, 2 waiting. ARGV 1 id, 2 '1' if PUBLISH counts every listener. Replies 1, or 0 if it was not there.
local value = redis.call('GET', KEYS[1])
if not value or string.match(value, '^%S+') ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1])
wake(KEYS[1], KEYS[2], ARGV[2], '')
return 1

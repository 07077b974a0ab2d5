-- Passes a wake on that reached nobody: its claim had given up waiting. If the lock is taken again, its leave will wake.
-- KEYS 1 the lock, 2 waiting. ARGV 1 '1' if PUBLISH counts every listener
local value = redis.call('GET', KEYS[1])
if not value then
  wake(KEYS[1], KEYS[2], ARGV[1], '')
elseif redis.call('EXISTS', KEYS[2]) == 1 then
  mark(KEYS[1], value)
end
return 1

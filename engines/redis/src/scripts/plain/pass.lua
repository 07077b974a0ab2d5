-- Passes a wake on that reached nobody: its claim had given up waiting.
-- KEYS 1 the lock, 2 waiting. ARGV 1 '1' if PUBLISH counts every listener
if redis.call('EXISTS', KEYS[1]) == 0 then wake(KEYS[1], KEYS[2], ARGV[1], '') end
return 1

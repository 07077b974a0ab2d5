-- Leaves a lock that nobody else has or wants: only the last place stays. It writes first and looks then.
local freed = 1
local before = redis.call('SET', lock, place, 'KEEPTTL', 'GET')
if not before or string.sub(before, 35, 66) ~= id then
  if before then redis.call('SET', lock, before, 'KEEPTTL') else redis.call('DEL', lock) end
  freed = false
end

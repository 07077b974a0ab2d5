-- Leaves a lock that nobody else has or wants: only the last place stays. It writes first and looks then.
local function free_alone(key, id, place)
  local lock = redis.call('SET', key, place, 'KEEPTTL', 'GET')
  if lock and string.sub(lock, 35, 66) == id then return 1 end
  if lock then redis.call('SET', key, lock, 'KEEPTTL') else redis.call('DEL', key) end
  return false
end


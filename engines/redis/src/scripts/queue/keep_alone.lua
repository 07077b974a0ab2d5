-- Renews a claim that is alone, where it stands.
local lock = redis.call('GET', KEYS[1])
local clock = redis.call('TIME')
local id = ARGV[1]
if lock and #lock > 16 and #ARGV == 2 then
  local now = clock[1] * 1000000 + clock[2]
  local place, confirmed_at, its_id, ttl_ms, rest = string.match(lock, '^(%d+) (%d+) (%S+) (%d+) (.*)$')
  if its_id == id and now < confirmed_at + ttl_ms * 1000 then -- Law 2
    local line = string.format('%s %016.0f %s %s %s', place, now, id, ARGV[2], rest)
    redis.call('SET', KEYS[1], line, 'PX', ARGV[2] + 600000)
    return {2, -1}
  end
end


-- Shows a lock that one claim has alone, and leaves it so.
local lock = redis.call('GET', KEYS[1])
local clock = redis.call('TIME')
local id = ''
if lock and #lock > 16 then
  local now = clock[1] * 1000000 + clock[2]
  local place, confirmed_at, its_id, ttl_ms, weight, rest =
    string.match(lock, '^(%d+) (%d+) (%S+) (%d+) (%d+) %S+ (.*)$')
  local left = confirmed_at + ttl_ms * 1000 - now
  if left > 0 then
    return {{its_id, table.concat({weight, place, rest}, ' '), math.max(0, now - place), left}}
  end
end


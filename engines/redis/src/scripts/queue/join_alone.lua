-- Takes a lock that nobody has, wants or has just left. The claim and all there is to know stand in one field, `sole`:
-- '<id> <due> <weight> <shape> <place> <channel> <demand> <holder>'. So a lock that nobody else wants costs little.
-- KEYS 1 queue. ARGV 1 id, 2 TTL in ms, 3 weight, 4 shape, 5 '<channel> <demand> <holder>'
local lone = redis.call('HMGET', KEYS[1], 'last', 'sole', 'due')
if not lone[2] and not lone[3] then
  local clock = redis.call('TIME')
  local now = clock[1] * 1000000 + clock[2]
  -- Law 8: the place is the token. It grows with the clock, and even without it.
  local place = math.max((tonumber(lone[1]) or 0) + 1, now)
  redis.call('HSET', KEYS[1], 'last', place, 'sole', string.format('%s %.0f %s %s %.0f %s',
    ARGV[1], now + ARGV[2] * 1000, ARGV[3], ARGV[4], place, ARGV[5]))
  redis.call('PEXPIRE', KEYS[1], ARGV[2] + 600000)
  return {place, 2, -1}
end


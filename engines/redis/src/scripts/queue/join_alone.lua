-- Takes a lock that nobody has, wants or has just left: the usual case, and so it costs little. With one key only it writes
-- first and looks at what was there then, moves texts only (Lua prints numbers slowly), and puts back what it must not have.
-- KEYS 1 lock, or all four as in state. ARGV 1 '<id> <TTL in ms> <weight> <shape> <channel> <demand> <holder>',
-- 2 for how many ms the lock's key lives
-- Replies the place, or nothing if the lock is in use and only its key was given.
local clock = redis.call('TIME')
if not KEYS[2] then
  local fraction = clock[2]
  if #fraction < 6 then fraction = string.rep('0', 6 - #fraction) .. fraction end
  -- Law 8: the place is the token. It grows with the clock; where the clock does not, the long way is taken.
  local place = clock[1] .. fraction
  if #place ~= 16 then return false end
  local before = redis.call('SET', KEYS[1], place .. ' ' .. place .. ' ' .. ARGV[1], 'PX', ARGV[2], 'GET')
  if not before or #before == 16 and before < place then return place end
  -- How long its key had to live is lost. It may live longer: as long as this claim alone needs, or for a queue, a day.
  local life_ms = ARGV[2]
  if before == '#' then
    life_ms = 87000000
  elseif #before > 16 then
    life_ms = string.match(before, '^%d+ %d+ %S+ (%d+)') + 600000
  end
  redis.call('SET', KEYS[1], before, 'PX', life_ms)
  return false
end
local lock = redis.call('GET', KEYS[1])
local id = string.sub(ARGV[1], 1, 32)


-- Takes a lock that nobody has, wants or has just left: the usual case, and so it costs little. It asks one key only,
-- moves texts only (Lua prints numbers slowly), and is all there is of the script when only that key is given.
-- KEYS 1 lock, or all four as in state. ARGV 1 '<id> <TTL in ms> <weight> <shape> <channel> <demand> <holder>',
-- 2 for how many ms the lock's key lives
-- Replies the place, or nothing if the lock is in use and only its key was given.
local lock = redis.call('GET', KEYS[1])
local clock = redis.call('TIME')
local fraction = clock[2]
if #fraction < 6 then fraction = string.rep('0', 6 - #fraction) .. fraction end
-- Law 8: the place is the token. It grows with the clock; where the clock does not, the long way is taken.
local place = clock[1] .. fraction
if #place == 16 and (not lock or #lock == 16 and lock < place) then
  redis.call('SET', KEYS[1], place .. ' ' .. place .. ' ' .. ARGV[1], 'PX', ARGV[2])
  return place
end
if not KEYS[2] then return false end
local id = string.sub(ARGV[1], 1, 32)


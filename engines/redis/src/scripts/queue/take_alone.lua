-- Takes a lock that nobody has, wants or has just left: the usual case, and so it costs little. It writes first and looks
-- at what was there then, moves texts only (Lua prints numbers slowly), and puts back what it must not have.
-- Law 8: the place is the token. It grows with the clock; where the clock does not, the long way is taken.
local clock = redis.call('TIME')
local fraction = clock[2]
if #fraction < 6 then fraction = string.rep('0', 6 - #fraction) .. fraction end
local place = clock[1] .. fraction
local function take_alone(lock, claim, life_ms)
  if #place ~= 16 then return false end
  local before = redis.pcall('SET', lock, place .. ' ' .. place .. ' ' .. claim, 'PX', life_ms, 'GET')
  if not before or #before == 16 and before < place then return place end
  -- Not even a text: the long way says what is wrong.
  if type(before) == 'table' then return false end
  -- How long its key had to live is lost. It may live longer: as long as this claim alone needs, or for a queue, a day.
  if before == '#' then
    life_ms = 87000000
  elseif #before > 16 then
    life_ms = string.match(before, '^%d+ %d+ %S+ (%d+)') + 600000
  end
  redis.call('SET', lock, before, 'PX', life_ms)
  return false
end


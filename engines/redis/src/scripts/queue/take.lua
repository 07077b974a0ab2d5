-- Takes a lock that nobody has, wants or has just left: the usual case, and so it costs little. It writes first and looks
-- at what was there then, moves texts only (Lua prints numbers slowly), and puts back what it must not have.
-- Law 8: the place is the token. It grows with the clock; where the clock does not, the long way is taken.
local taken = false
if #place == 16 then
  local before = redis.call('SET', lock, text, 'PX', life_ms, 'GET')
  if not before or #before == 16 and before < place then
    taken = place
  else
    -- How long its key had to live is lost. It may live longer: as long as this claim alone needs, or for a queue, a day.
    local before_ms = life_ms
    if before == '#' then
      before_ms = 87000000
    elseif #before > 16 then
      before_ms = string.match(before, '^%d+ %d+ %S+ (%d+)') + 600000
    end
    redis.call('SET', lock, before, 'PX', before_ms)
  end
end

-- Shows a lock. ARGV 1 is no claim. Replies, for each claim: id, claim, microseconds of age, of life left.
local reply = {}
local lives = redis.call('ZRANGE', expiries, 0, -1, 'WITHSCORES')
for i = 1, #lives, 2 do
  local claim = redis.call('HGET', queue, lives[i])
  if claim and claim ~= LEFT then
    local place = tonumber(string.match(claim, '^%d+ (%d+)'))
    table.insert(reply, {lives[i], claim, math.max(0, now - place), lives[i + 1] - now})
  end
end
return reply

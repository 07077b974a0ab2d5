-- Lets a holder take less room. ARGV 2 its new weight, 3 its new demand. Replies 1, or 0 if the claim is gone.
if not mine or mine == LEFT then return 0 end
local weight, place, channel, holder = string.match(mine, '^(%d+) (%d+) (%S+) %S+ (.*)$')
held = held - weight + ARGV[2]
redis.call('HSET', queue, id, table.concat({ARGV[2], place, channel, ARGV[3], holder}, ' '))
grant()
save()
return 1

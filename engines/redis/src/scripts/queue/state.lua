-- What every script of the queue style begins with: the lock's state, and the server's clock.
--
-- KEYS 1  queue     HASH  the lock's state, and one field per claim: '<weight> <place> <channel> <demand> <holder>'
--      2  expiries  ZSET  claim id -> the time at which it dies, in microseconds of this server's clock
--      3  waiters   ZSET  claim id -> place, of the claims that do not hold; whoever is not in it holds
-- ARGV 1  the claim's id
--
-- After every script: the dead are gone, and whoever fits has been told. So held = 0 means that nobody is here.
local queue, expiries, waiters = KEYS[1], KEYS[2], KEYS[3]

-- Law 7: expiry is judged by the server's clock.
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]

-- last: the last place given. held: the holders' summed weight. waiting: how many wait. shape: of whom there are, and
-- how much room there is. due: no claim dies earlier. sole: the only claim, as join_alone wrote it.
local state = redis.call('HMGET', queue, 'last', 'held', 'waiting', 'shape', 'due', 'sole', ARGV[1])
local last, held, waiting = tonumber(state[1]) or 0, tonumber(state[2]) or 0, tonumber(state[3]) or 0
local shape, due, mine = state[4], tonumber(state[5]), state[7]

-- From here on it is not alone.
if state[6] then
  local id, expires_at, weight, its_shape, claim = string.match(state[6], '^(%S+) (%d+) (%d+) (%S+) (.*)$')
  claim = weight .. ' ' .. claim
  held, shape, due = tonumber(weight), its_shape, tonumber(expires_at)
  redis.call('HDEL', queue, 'sole')
  redis.call('HSET', queue, 'held', held, 'shape', shape, 'due', due, id, claim)
  redis.call('ZADD', expiries, due, id)
  redis.call('PEXPIRE', expiries, redis.call('PTTL', queue))
  if id == ARGV[1] then mine = claim end
end

-- How long the keys outlive the last thing that happened to them, in milliseconds: the trace that lets tokens
-- grow even if the server's clock is set back, and the end of what crashed clients leave behind.
local TRACE_MS = 600000


-- What every script of the queue style goes on with: the lock's state, by the server's clock (Law 7).
--
-- KEYS 1  lock      STRING one of: '<last place>' if the lock is idle;
--                   '<place> <confirmed at> <id> <TTL in ms> <weight> <shape> <channel> <demand> <holder>' if one claim
--                   is alone; '#' if the queue says more. Places and times have 16 digits: microseconds.
--      2  queue     HASH  the lock's state, and one field per claim: '<weight> <place> <channel> <demand> <holder>'
--      3  expiries  ZSET  claim id -> the time at which it dies, in microseconds of this server's clock
--      4  waiters   ZSET  claim id -> place, of the claims that do not hold; whoever is not in it holds
--
-- After every script: the dead are gone, and whoever fits has been told. So held = 0 means that nobody is here.
local queue, expiries, waiters = KEYS[2], KEYS[3], KEYS[4]
local now = clock[1] * 1000000 + clock[2]

-- How long the keys outlive the last thing that happened to them, in milliseconds: the trace that lets tokens
-- grow even if the server's clock is set back, and the end of what crashed clients leave behind.
local TRACE_MS = 600000

-- last: the last place given. held: the holders' summed weight. waiting: how many wait. shape: of whom there are, and
-- how much room there is. due: no claim dies earlier. mine: the claim as the queue has it.
local last, held, waiting, shape, due, mine = 0, 0, 0, false, nil, false
local opened = lock == '#'
if opened then
  local state = redis.call('HMGET', queue, 'last', 'held', 'waiting', 'shape', 'due', id)
  last, held, waiting = tonumber(state[1]) or 0, tonumber(state[2]) or 0, tonumber(state[3]) or 0
  shape, due, mine = state[4], tonumber(state[5]), state[6]
elseif lock then
  last = tonumber(string.sub(lock, 1, 16))
end

-- The one that is alone moves into the queue, where others can stand behind it.
if lock and #lock > 16 then
  local confirmed_at, its_id, ttl_ms, weight, its_shape, rest =
    string.match(lock, '^%d+ (%d+) (%S+) (%d+) (%d+) (%S+) (.*)$')
  local claim = string.format('%s %.0f %s', weight, last, rest)
  opened, held, shape, due = true, tonumber(weight), its_shape, confirmed_at + ttl_ms * 1000
  if its_id == id then mine = claim end
  redis.call('SET', KEYS[1], '#', 'KEEPTTL')
  redis.call('HSET', queue, 'last', last, 'held', held, 'shape', shape, 'due', due, its_id, claim)
  redis.call('ZADD', expiries, due, its_id)
  local left_ms = redis.call('PTTL', KEYS[1])
  redis.call('PEXPIRE', queue, left_ms)
  redis.call('PEXPIRE', expiries, left_ms)
end


-- What every script of the queue style begins with: the lock's state, and the few moves that change it.
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

-- last: the last place given. held: the holders' summed weight. waiting: how many wait. due: no claim dies earlier.
local state = redis.call('HMGET', queue, 'last', 'held', 'waiting', 'limit', 'shape', 'due', ARGV[1])
local last, held, waiting = tonumber(state[1]) or 0, tonumber(state[2]) or 0, tonumber(state[3]) or 0
local limit, shape, due, mine = tonumber(state[4]), state[5], tonumber(state[6]), state[7]

-- How long the keys outlive the last thing that happened to them, in milliseconds: the trace that lets tokens
-- grow even if the server's clock is set back, and the end of what crashed clients leave behind.
local TRACE_MS = 600000

local function weight_of(claim)
  return tonumber(string.match(claim, '^%d+'))
end

-- Law 10: tells just those who fit, each on its keeper's own channel. Holders are a prefix of the queue.
local function grant()
  while waiting > 0 do
    local id = redis.call('ZRANGE', waiters, 0, 0)[1]
    local weight, channel = string.match(redis.call('HGET', queue, id), '^(%d+) %d+ (%S+)')
    if held + weight > limit then return end
    redis.call('ZREM', waiters, id)
    held, waiting = held + weight, waiting - 1
    redis.call('PUBLISH', channel, id)
  end
end

-- Takes a claim out, wherever it stands. The caller grants and saves.
local function remove(id, claim)
  redis.call('HDEL', queue, id)
  redis.call('ZREM', expiries, id)
  if waiting > 0 and redis.call('ZREM', waiters, id) == 1 then
    waiting = waiting - 1
  else
    held = held - weight_of(claim)
  end
end

-- An idle lock keeps nothing but the last place.
local function save()
  if held > 0 then
    redis.call('HSET', queue, 'last', last, 'held', held, 'waiting', waiting, 'limit', limit, 'shape', shape, 'due', due)
  else
    redis.call('HDEL', queue, 'held', 'waiting', 'limit', 'shape')
  end
end

-- Keys that exist may only live longer: another claim's TTL may be longer than mine.
local function outlive(key, is_new, ttl_ms)
  if is_new then
    redis.call('PEXPIRE', key, ttl_ms + TRACE_MS)
  else
    redis.call('PEXPIRE', key, ttl_ms + TRACE_MS, 'GT')
  end
end

-- Law 2: removes the dead for good, then grants. Costs nothing before the first of them can be dead.
local function prune()
  if not due or now < due then return end
  local dead = redis.call('ZRANGEBYSCORE', expiries, '-inf', now)
  for _, id in ipairs(dead) do
    local claim = redis.call('HGET', queue, id)
    remove(id, claim)
    if id == ARGV[1] then mine = false end
  end
  local first = redis.call('ZRANGE', expiries, 0, 0, 'WITHSCORES')[2]
  due = tonumber(first) or false
  if due then redis.call('HSET', queue, 'due', due) else redis.call('HDEL', queue, 'due') end
  if #dead > 0 then
    grant()
    save()
  end
end

-- In how many milliseconds a waiter should look by itself because a claim may be dead by then; -1 if it need not.
-- Only those in front look, or a crash would wake everybody.
local IN_FRONT = 3
local function look_in(id)
  if redis.call('ZRANK', waiters, id) >= IN_FRONT then return -1 end
  local first = redis.call('ZRANGE', expiries, 0, 0, 'WITHSCORES')[2]
  return math.max(1, math.ceil((first - now) / 1000))
end

-- What a claim that exists is told: 1 and when to look if it waits, 2 if it holds.
local function standing(id)
  if waiting > 0 and redis.call('ZSCORE', waiters, id) then
    return 1, look_in(id)
  end
  return 2, -1
end

-- A claim that has left before it arrived: see leave.
local LEFT = '0 0 - - -'

prune()

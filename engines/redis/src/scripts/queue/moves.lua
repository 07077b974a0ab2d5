-- The few moves that change a queue.

local limit = shape and tonumber(string.match(shape, '%d+$'))

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

-- An idle lock keeps nothing but the last place, and the marks of those who left before they arrived.
local function save()
  if held > 0 then
    redis.call('HSET', queue, 'last', last, 'held', held, 'waiting', waiting, 'shape', shape, 'due', due)
  else
    redis.call('HDEL', queue, 'held', 'waiting', 'shape')
    if redis.call('EXISTS', expiries) == 0 then redis.call('HDEL', queue, 'due') end
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

-- Enters when a claim dies.
local function dies_at(id, expires_at, ttl_ms)
  redis.call('ZADD', expiries, expires_at, id)
  outlive(expiries, not due, ttl_ms)
  due = math.min(due or expires_at, expires_at)
end

-- Law 2: removes the dead for good, then grants. Costs nothing before the first of them can be dead.
local function prune()
  if not due or now < due then return end
  local dead = redis.call('ZRANGEBYSCORE', expiries, '-inf', now)
  for _, id in ipairs(dead) do
    remove(id, redis.call('HGET', queue, id))
    if id == ARGV[1] then mine = false end
  end
  due = tonumber(redis.call('ZRANGE', expiries, 0, 0, 'WITHSCORES')[2])
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


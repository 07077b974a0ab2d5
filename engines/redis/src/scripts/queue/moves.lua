-- The few moves that change a queue.

local limit = shape and tonumber(string.match(shape, '%d+$'))

local function weight_of(claim)
  return tonumber(string.match(claim, '^%d+'))
end

-- Law 10: tells just those who fit, each on its keeper's own channel. Holders are a prefix of the queue.
local function grant()
  while waiting > 0 do
    local first = redis.call('ZRANGE', waiters, 0, 0)[1]
    local weight, channel = string.match(redis.call('HGET', queue, first), '^(%d+) %d+ (%S+)')
    if held + weight > limit then return end
    redis.call('ZREM', waiters, first)
    held, waiting = held + weight, waiting - 1
    redis.call('PUBLISH', channel, first)
  end
end

-- Takes a claim out, wherever it stands. The caller grants and saves.
local function remove(leaving, claim)
  redis.call('HDEL', queue, leaving)
  redis.call('ZREM', expiries, leaving)
  if waiting > 0 and redis.call('ZREM', waiters, leaving) == 1 then
    waiting = waiting - 1
  else
    held = held - weight_of(claim)
  end
end

-- An idle lock keeps nothing but the last place, and the marks of those who left before they arrived.
local function save()
  if held > 0 then
    redis.call('HSET', queue, 'last', last, 'held', held, 'waiting', waiting, 'shape', shape, 'due', due)
  elseif redis.call('EXISTS', expiries) == 1 then
    redis.call('HDEL', queue, 'held', 'waiting', 'shape')
  else
    opened, due = false, nil
    redis.call('DEL', queue)
    redis.call('SET', KEYS[1], string.format('%016.0f', last), 'PX', TRACE_MS)
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

-- After the queue was written: says so in the lock's own key. That one never dies before the others, for without it the
-- lock is taken for free.
local function open(ttl_ms)
  outlive(queue, not opened, ttl_ms)
  if opened then
    outlive(KEYS[1], false, ttl_ms)
  else
    redis.call('SET', KEYS[1], '#', 'PX', ttl_ms + TRACE_MS)
    opened = true
  end
end

-- Enters when a claim dies.
local function dies_at(dying, expires_at, ttl_ms)
  redis.call('ZADD', expiries, expires_at, dying)
  outlive(expiries, not due, ttl_ms)
  due = math.min(due or expires_at, expires_at)
end

-- Law 2: removes the dead for good, then grants. Costs nothing before the first of them can be dead.
local function prune()
  if not due or now < due then return end
  local dead = redis.call('ZRANGEBYSCORE', expiries, '-inf', now)
  for _, dying in ipairs(dead) do
    remove(dying, redis.call('HGET', queue, dying))
    if dying == id then mine = false end
  end
  due = tonumber(redis.call('ZRANGE', expiries, 0, 0, 'WITHSCORES')[2])
  if due then redis.call('HSET', queue, 'due', due) end
  if #dead > 0 then
    grant()
    save()
  end
end

-- In how many milliseconds a waiter should look by itself because a claim may be dead by then; -1 if it need not.
-- Only those in front look, or a crash would wake everybody.
local IN_FRONT = 3
local function look_in(looking)
  if redis.call('ZRANK', waiters, looking) >= IN_FRONT then return -1 end
  local first = redis.call('ZRANGE', expiries, 0, 0, 'WITHSCORES')[2]
  return math.max(1, math.ceil((first - now) / 1000))
end

-- What a claim that exists is told: 1 and when to look if it waits, 2 if it holds.
local function standing(asking)
  if waiting > 0 and redis.call('ZSCORE', waiters, asking) then
    return 1, look_in(asking)
  end
  return 2, -1
end

-- A claim that has left before it arrived: see leave.
local LEFT = '0 0 - - -'

prune()


-- The fair queue of a lock: the whole style 'queue' in one script. The first argument names the verb.
--
-- KEYS for each lock
--   1 lock      STRING  a lock with one claim: '<id> <claim>', and the key expires with the claim.
--                       A lock with several: '#', and the next three keys have them. A free lock has no keys.
--   2 queue     HASH    held: the holders' summed weight; waiting: the number of waiters; shape: of all claims;
--                       due: no claim expires earlier; and one field per claim: id -> claim.
--                       Of a holder that had to wait also granted:id -> since when it holds, in microseconds;
--                       of a claim that somebody asks to be released asked:id
--   3 expiries  ZSET    id -> when the claim expires, in microseconds of this server's clock (Law 7)
--   4 waiters   ZSET    id -> place, of the claims that do not hold
-- and of 'join' alone
--   5 token     STRING  the last token that this server has given, to any claim of any lock. It never expires.
--
-- A claim is '<place> <weight> <shape> <channel> <demand> <holder>'. The place is the token. A shape ends in its limit.
--
-- ARGV after the verb, and the reply
--   join    id, TTL in ms, claim without its place  the place if the claim is alone; else {place, state, look in ms};
--                                                   {shape} if the lock has another one; {} if the claim has left
--   leave   id, TTL in ms of the mark, or 0         1, or 0 if the claim is not here
--   evict   id                                      the same
--   keep    for each lock: the number of claims, and for each claim id and TTL in ms
--                                                   for each lock: state and look in ms of each claim
--   ask     id                                      the same
--   shrink  id, new weight, new demand              1, or 0 if the claim is not here
--   list                                            for each claim: {id, claim, age, time left, held for}, in us
-- A state is 0: gone, 1: waits, 2: holds, 3: holds and is asked to be released. 'look in ms': when a waiter should renew by
-- itself, or -1.
local verb, id = ARGV[1], ARGV[2]
local place

-- The fast path: nobody else uses the lock.
if verb == 'join' then
  -- Law 8: max(last + 1, now). Numbers are compared as text, since Lua prints them slowly.
  local clock = redis.call('TIME')
  place = clock[1] .. string.sub('00000' .. clock[2], -6)
  local last = redis.call('SET', KEYS[5], place, 'GET')
  if last and (#last > #place or (#last == #place and last >= place)) then
    place = string.format('%.0f', last + 1)
    redis.call('SET', KEYS[5], place)
  end
  local text = id .. ' ' .. place .. ' ' .. ARGV[4]
  local present = redis.call('SET', KEYS[1], text, 'NX', 'PX', ARGV[3], 'GET')
  if not present then return place end
  if string.sub(present, 1, 32) == id then return string.match(present, '^%x+ (%d+)') end
elseif verb == 'leave' or verb == 'evict' then
  local present = redis.call('GET', KEYS[1])
  if present and string.sub(present, 1, 32) == id then
    redis.call('DEL', KEYS[1])
    return 1
  end
end

-- A claim that has left before it arrived, and must not be let in later.
local LEFT = '0 0 - - - -'
-- How many waiters look by themselves when a claim may have expired: not all, or a crash would wake everybody.
local POLLERS = 3

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]

-- The lock that is worked on: its keys and its state. Without a queue, due is false.
local lock, queue, expiries, waiters
local held, waiting, shape, due

local function weight_of(claim)
  return tonumber(string.match(claim, '^%d+ (%d+)'))
end

local function channel_of(claim)
  return string.match(claim, '^%d+ %d+ %S+ (%S+)')
end

-- The rule: a claim holds if ahead + weight <= limit. The same as `grant::fits` in the core.
local function fits(ahead, weight)
  return ahead + weight <= tonumber(string.match(shape, '%d+$'))
end

-- Law 10: notifies just those who fit, each on its keeper's own channel. Holders are a prefix of the queue.
local function grant()
  while waiting > 0 do
    local first = redis.call('ZRANGE', waiters, 0, 0)[1]
    local claim = redis.call('HGET', queue, first)
    if not fits(held, weight_of(claim)) then return end
    redis.call('ZREM', waiters, first)
    held, waiting = held + weight_of(claim), waiting - 1
    redis.call('HSET', queue, 'granted:' .. first, string.format('%.0f', now))
    redis.call('PUBLISH', channel_of(claim), first)
  end
end

-- Takes a claim out, wherever it stands. The caller grants and saves.
local function remove(leaving, claim)
  redis.call('HDEL', queue, leaving, 'granted:' .. leaving, 'asked:' .. leaving)
  redis.call('ZREM', expiries, leaving)
  if waiting > 0 and redis.call('ZREM', waiters, leaving) == 1 then
    waiting = waiting - 1
  else
    held = held - weight_of(claim)
  end
end

local function forget()
  redis.call('DEL', lock, queue, expiries, waiters)
  held, waiting, shape, due = 0, 0, false, false
end

-- Writes the state. A lock that nobody uses any more has no keys.
local function save()
  if redis.call('EXISTS', expiries) == 0 then return forget() end
  redis.call('HSET', queue, 'held', held, 'waiting', waiting, 'shape', shape or '-', 'due', due)
end

-- How much longer all keys live than the claim that expires last, so that its keeper can be notified: a clock that is set
-- forward by more than the TTL would else remove them without a message.
local SPARE_MS = 60000

-- Enters when a claim expires. The caller saves.
local function expire(expiring, ttl_ms)
  local at = now + ttl_ms * 1000
  redis.call('ZADD', expiries, at, expiring)
  due = math.min(due or at, at)
  local last_ms = math.ceil(redis.call('ZRANGE', expiries, -1, -1, 'WITHSCORES')[2] / 1000) + SPARE_MS
  for _, key in ipairs({lock, queue, expiries, waiters}) do
    redis.call('PEXPIREAT', key, last_ms)
  end
end

-- Law 2: removes the dead for good, then grants. Costs nothing before the first of them can be dead. Their keepers are
-- notified before the next ones hold: after this server's clock was set forward they would else believe until their next renewal.
local function prune()
  if now < due then return end
  for _, dead in ipairs(redis.call('ZRANGEBYSCORE', expiries, '-inf', now)) do
    local claim = redis.call('HGET', queue, dead)
    remove(dead, claim)
    if claim ~= LEFT then redis.call('PUBLISH', channel_of(claim), '-' .. dead) end
  end
  due = tonumber(redis.call('ZRANGE', expiries, 0, 0, 'WITHSCORES')[2])
  grant()
  save()
end

-- A new queue. What an expired one may have left behind goes.
local function begin()
  redis.call('DEL', queue, expiries, waiters)
  redis.call('SET', lock, '#')
end

-- Chooses the lock whose keys begin at this one. A claim that is alone moves into a queue.
local function use(first, present)
  lock, queue, expiries, waiters = KEYS[first], KEYS[first + 1], KEYS[first + 2], KEYS[first + 3]
  held, waiting, shape, due = 0, 0, false, false
  if not present then return end
  if present == '#' then
    local state = redis.call('HMGET', queue, 'held', 'waiting', 'shape', 'due')
    if not state[4] then return forget() end
    held, waiting, shape, due = tonumber(state[1]), tonumber(state[2]), state[3], tonumber(state[4])
    return prune()
  end
  local alone, claim = string.sub(present, 1, 32), string.sub(present, 34)
  local left_ms = redis.call('PTTL', lock)
  held, shape = weight_of(claim), string.match(claim, '^%d+ %d+ (%S+)')
  if not shape then error('lockkeeper: this lock was written by another release') end
  begin()
  redis.call('HSET', queue, alone, claim)
  expire(alone, left_ms)
  save()
end

-- In how many milliseconds a waiter should look because a claim may have expired by then; -1 if it need not.
local function look_in(waiter)
  if redis.call('ZRANK', waiters, waiter) >= POLLERS then return -1 end
  local first = redis.call('ZRANGE', expiries, 0, 0, 'WITHSCORES')[2]
  return math.max(1, math.ceil((first - now) / 1000))
end

local function state_of(claim_id)
  if waiting > 0 and redis.call('ZSCORE', waiters, claim_id) then return 1, look_in(claim_id) end
  return redis.call('HGET', queue, 'asked:' .. claim_id) and 3 or 2, -1
end

local function join()
  use(1, redis.call('GET', KEYS[1]))
  local ttl_ms, rest = tonumber(ARGV[3]), ARGV[4]
  if not due then
    redis.call('SET', lock, id .. ' ' .. place .. ' ' .. rest, 'PX', ttl_ms)
    return place
  end
  local mine = redis.call('HGET', queue, id)
  if mine == LEFT then return {} end
  if mine then return {tonumber(string.match(mine, '^%d+')), state_of(id)} end
  local weight, its_shape = string.match(rest, '^(%d+) (%S+)')
  weight = tonumber(weight)
  if held == 0 then
    shape = its_shape
  elseif shape ~= its_shape then
    return {shape} -- Law 6
  end
  redis.call('HSET', queue, id, place .. ' ' .. rest)
  local holds = waiting == 0 and fits(held, weight)
  if holds then
    held = held + weight
  else
    redis.call('ZADD', waiters, place, id)
    waiting = waiting + 1
  end
  expire(id, ttl_ms)
  save()
  return {tonumber(place), state_of(id)}
end

local function leave(mark_ms)
  use(1, redis.call('GET', KEYS[1]))
  local mine = due and redis.call('HGET', queue, id)
  if mine == LEFT then return 0 end
  if not mine then
    if mark_ms > 0 then
      -- Its join may still be on its way over a connection that was given up.
      if not due then begin() end
      redis.call('HSET', queue, id, LEFT)
      expire(id, mark_ms)
      save()
    end
    return 0
  end
  remove(id, mine)
  if verb == 'evict' then redis.call('PUBLISH', channel_of(mine), '-' .. id) end
  grant()
  save()
  return 1
end

-- Renews one claim of the lock in use. Law 2: never revives a dead one.
local function keep(renewed, ttl_ms)
  local claim = due and redis.call('HGET', queue, renewed)
  if not claim or claim == LEFT then return 0, -1 end
  expire(renewed, ttl_ms)
  redis.call('HSET', queue, 'due', due)
  return state_of(renewed)
end

-- The same for a lock with a single claim.
local function keep_alone(key, present, renewed, ttl_ms)
  if string.sub(present, 1, 32) ~= renewed then return 0, -1 end
  redis.call('PEXPIRE', key, ttl_ms)
  return 2, -1
end

local function keep_all()
  local replies, argument = {}, 2
  for first = 1, #KEYS, 4 do
    local reply, count = {}, tonumber(ARGV[argument])
    local present = redis.call('GET', KEYS[first])
    local is_alone = present and present ~= '#'
    if not is_alone then use(first, present) end
    for i = 1, 2 * count, 2 do
      local renewed, ttl_ms = ARGV[argument + i], tonumber(ARGV[argument + i + 1])
      if is_alone then
        reply[i], reply[i + 1] = keep_alone(KEYS[first], present, renewed, ttl_ms)
      else
        reply[i], reply[i + 1] = keep(renewed, ttl_ms)
      end
    end
    replies[#replies + 1] = reply
    argument = argument + 2 * count + 1
  end
  return replies
end

-- Somebody asks for the claim to be released: a message says so, and each of its renewals.
local function ask()
  use(1, redis.call('GET', KEYS[1]))
  local mine = due and redis.call('HGET', queue, id)
  if not mine or mine == LEFT then return 0 end
  redis.call('HSET', queue, 'asked:' .. id, 1)
  redis.call('PUBLISH', channel_of(mine), '?' .. id)
  return 1
end

-- Lets a holder take less room.
local function shrink()
  use(1, redis.call('GET', KEYS[1]))
  local mine = due and redis.call('HGET', queue, id)
  if not mine or mine == LEFT then return 0 end
  local its_place, weight, its_shape, channel, holder = string.match(mine, '^(%d+) (%d+) (%S+) (%S+) %S+ (.*)$')
  held = held - weight + ARGV[3]
  redis.call('HSET', queue, id, table.concat({its_place, ARGV[3], its_shape, channel, ARGV[4], holder}, ' '))
  grant()
  save()
  return 1
end

local function list()
  -- The place is the time of the join, which was the grant of a claim that did not have to wait.
  local function shown(claim_id, claim, left)
    local age = math.max(0, now - string.match(claim, '^%d+'))
    local granted = redis.call('HGET', KEYS[2], 'granted:' .. claim_id)
    return {claim_id, claim, age, left, granted and math.max(0, now - granted) or age}
  end
  local present = redis.call('GET', KEYS[1])
  if present and present ~= '#' then
    return {shown(string.sub(present, 1, 32), string.sub(present, 34), redis.call('PTTL', KEYS[1]) * 1000)}
  end
  use(1, present)
  local reply = {}
  local lives = due and redis.call('ZRANGE', expiries, 0, -1, 'WITHSCORES') or {}
  for i = 1, #lives, 2 do
    local claim = redis.call('HGET', queue, lives[i])
    if claim ~= LEFT then reply[#reply + 1] = shown(lives[i], claim, lives[i + 1] - now) end
  end
  return reply
end

if verb == 'join' then return join() end
if verb == 'leave' then return leave(tonumber(ARGV[3])) end
if verb == 'evict' then return leave(0) end
if verb == 'keep' then return keep_all() end
if verb == 'ask' then return ask() end
if verb == 'shrink' then return shrink() end
if verb == 'list' then return list() end
return redis.error_reply('ERR lockkeeper: unknown verb')

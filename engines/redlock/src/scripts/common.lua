-- The prelude of every script of RedLock.
--
-- KEYS for each lock
--      1  lock     held exclusively: a string '<id>-<attempt> <holder> <since, in ms>'; other clients of RedLock write
--                  a string, too;
--                  shared: a ZSET of such texts -> the time at which the share ends, in ms of this node's clock
--      2  fence    '<number> <id>': the last number given here, and to whom
--      3  waiting  ZSET '<channel> <id> <mode>' -> since when
--      4  left     of claims and regain: the mark of a claim that has left before it arrived
local lock, fence, waiting

-- Chooses the lock whose keys begin at this one.
local function use(first)
  lock, fence, waiting = KEYS[first], KEYS[first + 1], KEYS[first + 2]
end

use(1)

-- This node's clock: seconds, and milliseconds. Not every call needs it.
local clock
local function seconds()
  clock = clock or redis.call('TIME')
  return clock[1]
end
local function now_ms()
  return seconds() * 1000 + math.floor(clock[2] / 1000)
end

-- Reads '<id>-<attempt> …'; another client's value has no such form.
local function read(value)
  local id, attempt = string.match(value, '^(%x+)-(%d+) ')
  return id, tonumber(attempt)
end

-- The value with which the claim holds here, and whether it is shared; or nothing.
local function hold_of(claim)
  -- MGET passes over a key of another type.
  local alone = redis.call('MGET', lock)[1]
  if alone then
    if read(alone) == claim then return alone, false end
  elseif redis.call('TYPE', lock).ok == 'zset' then
    redis.call('ZREMRANGEBYSCORE', lock, '-inf', now_ms())
    for _, value in ipairs(redis.call('ZRANGE', lock, 0, -1)) do
      if read(value) == claim then return value, true end
    end
  end
end

-- A shared lock lives as long as its longest share.
local function live(ttl_ms)
  if redis.call('PTTL', lock) < ttl_ms then redis.call('PEXPIRE', lock, ttl_ms) end
end

-- Reads a fence; one that is missing is the number of nobody.
local function number_of(fenced)
  local last, owner = string.match(fenced or '0 -', '^(%d+) (%S+)$')
  return tonumber(last), owner
end

local function last_number()
  return number_of(redis.call('GET', fence))
end

-- Wakes who may have the lock now: the first, and if it wants to share, those behind it who do, too.
local function wake()
  local one_alone = true
  while true do
    local first = redis.call('ZRANGE', waiting, 0, 0)[1]
    if not first or redis.call('EXISTS', lock) == 1 then return end
    local channel, id, mode = string.match(first, '^(%S+) (%S+) (%S+)$')
    if mode == 'exclusive' and not one_alone then return end
    redis.call('ZREM', waiting, first)
    if redis.call('PUBLISH', channel, id .. ' ' .. lock) > 0 then
      if mode == 'exclusive' then return end
      one_alone = false
    end
  end
end

-- Whether somebody asks for the hold of this value to be released (ask.lua).
local function is_asked(value)
  return string.sub(value, -1) == '?'
end

local function remove(value, shared)
  if shared then redis.call('ZREM', lock, value) else redis.call('DEL', lock) end
  wake()
end

-- Takes and frees locks at this node, in the order of the claims that want it.
-- KEYS for each, the four.
-- ARGV for each, id, attempt, mode or 'leave', TTL in ms; to take also value, and how long the fence is remembered, in ms.
-- Replies for each as below, or with the text of an error.

-- Takes the lock, or finds that the claim has it already, and gives it a number.
-- Returns {1, number}, or {0, how long the hold can last at most in ms, or below 0}.
local function attempt(left, id, nth, mode, ttl_ms, value, fence_ms)
  value = value .. string.format(' %.0f', now_ms())
  local marks = redis.call('MGET', fence, left)
  -- A claim that has left must not come in late.
  if marks[2] then return {0, -1} end
  -- Most locks are free, and then nothing else is to be looked at.
  if mode == 'shared' or not redis.call('SET', lock, value, 'NX', 'PX', ttl_ms) then
    local mine, shared = hold_of(id)
    if mine then
      -- A later attempt of the same claim: its renewal. An earlier one that comes late must not undo that.
      local _, present = read(mine)
      if present > tonumber(nth) then return {0, -1} end
      if shared then redis.call('ZREM', lock, mine) else redis.call('DEL', lock) end
    end
    if mode == 'shared' then
      if redis.call('TYPE', lock).ok == 'string' then return {0, redis.call('PTTL', lock)} end
      redis.call('ZADD', lock, now_ms() + ttl_ms, value)
      live(tonumber(ttl_ms))
    elseif not redis.call('SET', lock, value, 'NX', 'PX', ttl_ms) then
      return {0, redis.call('PTTL', lock)}
    end
  end

  -- Numbers only grow, by the clock across long idle times, and by one otherwise. The clock is so coarse that all nodes
  -- mostly give the same number; then no second round is needed.
  local last, owner = number_of(marks[1])
  if owner ~= id then
    last = math.max(last + 1, seconds() * 1048576)
  end
  redis.call('SET', fence, string.format('%.0f %s', last, id), 'PX', fence_ms)
  return {1, last}
end

-- Frees this node from the claim: all of it, or just what one attempt left here, unless that is 0.
-- Returns 1 if it was here, 0 if not.
local function leave(left, id, nth, ttl_ms)
  local mine, shared = hold_of(id)
  if not mine then
    -- The attempt of a claim that is over may still be on its way.
    if nth == '0' then redis.call('SET', left, '1', 'PX', ttl_ms) end
    return 0
  end
  local _, present = read(mine)
  if nth ~= '0' and tonumber(nth) ~= present then return 0 end
  remove(mine, shared)
  return 1
end

local function reply_to(number)
  use(4 * number - 3)
  local left, id, nth, mode, ttl_ms, value, fence_ms = KEYS[4 * number], unpack(ARGV, 6 * number - 5, 6 * number)
  if mode == 'leave' then return leave(left, id, nth, ttl_ms) end
  return attempt(left, id, nth, mode, ttl_ms, value, fence_ms)
end

local replies = {}
for number = 1, #KEYS / 4 do
  local is_fine, reply = pcall(reply_to, number)
  if not is_fine then
    local text = type(reply) == 'table' and reply.err or tostring(reply)
    -- A key of another type concerns one claim alone. What else fails here fails for all.
    if not string.find(text, 'WRONGTYPE', 1, true) then return redis.error_reply(text) end
    reply = text
  end
  replies[number] = reply
end
return replies

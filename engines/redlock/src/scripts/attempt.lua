-- Takes the lock at this node, or finds that the claim has it already, and gives it a number.
-- ARGV 1 id, 2 attempt, 3 value, 4 mode, 5 TTL in ms, 6 how long the fence is remembered, in ms
-- Replies {1, number}, or {0, how long the hold can last at most in ms, or below 0}.
local id, attempt, value, mode, ttl_ms = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4], tonumber(ARGV[5])

value = value .. string.format(' %.0f', now_ms())
local fenced, left = unpack(redis.call('MGET', fence, KEYS[4]))
-- A claim that has left must not come in late.
if left then return {0, -1} end
-- Most locks are free, and then nothing else is to be looked at.
if mode == 'shared' or not redis.call('SET', lock, value, 'NX', 'PX', ttl_ms) then
  local mine, shared = hold_of(id)
  if mine then
    -- A later attempt of the same claim: its renewal. An earlier one that comes late must not undo that.
    local _, present = read(mine)
    if present > attempt then return {0, -1} end
    if shared then redis.call('ZREM', lock, mine) else redis.call('DEL', lock) end
  end
  if mode == 'shared' then
    if redis.call('TYPE', lock).ok == 'string' then return {0, redis.call('PTTL', lock)} end
    redis.call('ZADD', lock, now_ms() + ttl_ms, value)
    live(ttl_ms)
  elseif not redis.call('SET', lock, value, 'NX', 'PX', ttl_ms) then
    return {0, redis.call('PTTL', lock)}
  end
end

-- Numbers only grow, by the clock across long idle times, and by one otherwise. The clock is so coarse that all nodes
-- mostly give the same number; then no second round is needed.
local last, owner = number_of(fenced)
if owner ~= id then
  last = math.max(last + 1, seconds() * 1048576)
end
redis.call('SET', fence, string.format('%.0f %s', last, id), 'PX', ARGV[6])
return {1, last}

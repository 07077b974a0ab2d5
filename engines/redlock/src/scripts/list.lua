-- Shows the lock at this node. Replies {number or 0, owner, then for each hold: value, ms left or below 0, 1 if shared,
-- ms since it was taken or below 0}.
local last, owner = last_number()
local reply = {last, owner}
local function show(value, left_ms, shared)
  local since = read(value) and string.match(value, ' (%d+)%??$')
  table.insert(reply, {value, left_ms, shared, since and math.max(0, now_ms() - since) or -1})
end
local kind = redis.call('TYPE', lock).ok
if kind == 'string' then
  show(redis.call('GET', lock), redis.call('PTTL', lock), 0)
elseif kind == 'zset' then
  local shares = redis.call('ZRANGEBYSCORE', lock, '(' .. now_ms(), '+inf', 'WITHSCORES')
  for i = 1, #shares, 2 do
    show(shares[i], shares[i + 1] - now_ms(), 1)
  end
end
return reply

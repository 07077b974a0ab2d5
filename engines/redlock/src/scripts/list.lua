-- Shows the lock at this node. Replies {number or 0, owner, then for each hold: value, ms left or below 0, 1 if shared}.
local last, owner = last_number()
local reply = {last, owner}
local kind = redis.call('TYPE', lock).ok
if kind == 'string' then
  table.insert(reply, {redis.call('GET', lock), redis.call('PTTL', lock), 0})
elseif kind == 'zset' then
  local shares = redis.call('ZRANGEBYSCORE', lock, '(' .. now_ms, '+inf', 'WITHSCORES')
  for i = 1, #shares, 2 do
    table.insert(reply, {shares[i], shares[i + 1] - now_ms, 1})
  end
end
return reply

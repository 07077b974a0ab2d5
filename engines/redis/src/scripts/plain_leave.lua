-- Frees a lock of the style 'plain' if the claim has it. If the lock is free then, wakes the first waiter whose keeper listens.
-- Without an id it only wakes: for a message that reached a claim which had given up waiting.
-- KEYS 1 lock, 2 waiting ZSET '<channel> <id>' -> since when, 3 left
-- ARGV 1 id, another client's whole value, or ''; 2 for how many ms a late attempt of the claim is kept out if it is not
--      here, or 0;
--      3 '1' if PUBLISH counts all subscribers (in a cluster it counts those at one member)
-- Replies 1 if the claim had the lock, else 0.
local id, mark_ms, counts_all = ARGV[1], ARGV[2], ARGV[3] == '1'
local present = redis.call('GET', KEYS[1])
-- Ours begin with the id and the token; of another client's the whole value is its name.
local was_here = present and id ~= '' and (string.match(present, '^(%x+) %d+ ') == id or present == id)
if was_here then
  redis.call('DEL', KEYS[1])
elseif mark_ms ~= '0' then
  redis.call('SET', KEYS[3], '1', 'PX', mark_ms)
end
local is_awake = present and not was_here
while not is_awake do
  local first = redis.call('ZPOPMIN', KEYS[2])[1]
  if not first then break end
  local channel, waiter = string.match(first, '^(%S+) (%S+)$')
  -- The claim itself may be on the list from before it was granted.
  if waiter ~= id then
    local subscribers = redis.call('PUBLISH', channel, waiter .. ' ' .. KEYS[1])
    is_awake = subscribers > 0 or not counts_all
  end
end
return was_here and 1 or 0

-- Wakes one who waits for a free lock: the first whose keeper still listens.
-- A cluster's PUBLISH counts the listeners at one member only, so there the first is woken in any case.
-- Whoever leaves is not woken: it may be on the list from before it was granted.
local function wake(lock, waiting, every_listener_counts, leaving)
  while true do
    local first = redis.call('ZPOPMIN', waiting)[1]
    if not first then return end
    if first ~= leaving then
      local channel, id = string.match(first, '^(%S+) (%S+)$')
      local listeners = redis.call('PUBLISH', channel, id .. ' ' .. lock)
      if listeners > 0 or every_listener_counts ~= '1' then return end
    end
  end
end


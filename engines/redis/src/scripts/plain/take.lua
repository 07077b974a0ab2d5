-- Takes a free lock, and its token. Law 8: tokens grow with the clock, and even without it. A fence that has followed the clock
-- may count on for a while, which is quicker: a server cannot grant a lock as often as its clock ticks.
local token = false
local holder = redis.call('SET', lock, value, 'PX', ttl_ms, 'NX', 'GET')
if not holder then
  if not by_clock then token = redis.call('INCR', fence) end
  -- One that was forgotten, or evicted by the server, begins again at 1.
  if not token or token < 1e15 then
    if not now then
      local clock = redis.call('TIME')
      local fraction = clock[2]
      if #fraction < 6 then fraction = string.rep('0', 6 - #fraction) .. fraction end
      now = clock[1] .. fraction
    end
    -- Texts are compared, since Lua prints numbers slowly.
    token = now
    local before = redis.call('SET', fence, token, 'PX', ttl_ms + FENCE_MS, 'GET')
    if before and (#before ~= #token or before >= token) and tonumber(before) >= tonumber(token) then
      token = string.format('%.0f', before + 1)
      redis.call('SET', fence, token, 'PX', ttl_ms + FENCE_MS)
    end
  end
end

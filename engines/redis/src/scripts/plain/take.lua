-- Takes a free lock, and its token.
local token = false
local holder = redis.call('SET', lock, value, 'PX', ttl_ms, 'NX', 'GET')
if not holder then
  if not now then
    local clock = redis.call('TIME')
    local fraction = clock[2]
    if #fraction < 6 then fraction = string.rep('0', 6 - #fraction) .. fraction end
    now = clock[1] .. fraction
  end
  -- Law 8: grows with the clock, and even without it. Texts are compared, since Lua prints numbers slowly.
  token = now
  local before = redis.call('SET', fence, token, 'PX', fence_ms, 'GET')
  if before and (#before ~= #token or before >= token) and tonumber(before) >= tonumber(token) then
    token = string.format('%.0f', before + 1)
    redis.call('SET', fence, token, 'PX', fence_ms)
  end
end

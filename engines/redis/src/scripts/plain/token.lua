-- Law 8: a token grows with the clock, and even without it. Texts are compared, since Lua prints numbers slowly.
local function raise(fence, token, fence_ms)
  local before = redis.call('SET', fence, token, 'PX', fence_ms, 'GET')
  if before and (#before ~= #token or before >= token) and tonumber(before) >= tonumber(token) then
    token = string.format('%.0f', before + 1)
    redis.call('SET', fence, token, 'PX', fence_ms)
  end
  return token
end

local function time()
  local clock = redis.call('TIME')
  local fraction = clock[2]
  if #fraction < 6 then fraction = string.rep('0', 6 - #fraction) .. fraction end
  return clock[1] .. fraction
end


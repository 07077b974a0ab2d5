-- Marks a lock that one of us holds, so that its leave wakes who waits. Other clients' values must stay as they are.
local function is_ours(value)
  return string.find(value, '^%x+ {') ~= nil
end

local function mark(lock, value)
  if is_ours(value) and string.sub(value, -1) ~= '*' then redis.call('APPEND', lock, '*') end
end


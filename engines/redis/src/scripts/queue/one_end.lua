end

local function part(list, first, last)
  local taken = {}
  for i = first, last do taken[#taken + 1] = list[i] end
  return taken
end

-- KEYS four for each lock. ARGV for each lock: how many arguments it has, and those.
local replies, argument = {}, 1
for key = 1, #KEYS, 4 do
  local last = argument + ARGV[argument]
  replies[#replies + 1] = one(part(KEYS, key, key + 3), part(ARGV, argument + 1, last))
  argument = last + 1
end
return replies

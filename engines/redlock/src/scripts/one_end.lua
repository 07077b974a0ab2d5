end

-- Three keys and three arguments for each.
local replies = {}
for i = 1, #KEYS, 3 do
  replies[#replies + 1] = one({unpack(KEYS, i, i + 2)}, {unpack(ARGV, i, i + 2)})
end
return replies

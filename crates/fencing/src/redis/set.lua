-- Writes a fenced key and raises its fence. KEYS: the data, the fence. ARGV: the token, the new value.
-- Answers {1, 'OK'}, or {0, the largest token} if the token is stale.

-- As text, for Lua's numbers are exact up to 2^53 only.
local function smaller(one, other)
    if #one ~= #other then return #one < #other end
    return one < other
end

local highest = redis.call('GET', KEYS[2])
if highest and smaller(ARGV[1], highest) then
    return {0, highest}
end
redis.call('SET', KEYS[2], ARGV[1])
redis.call('SET', KEYS[1], ARGV[2])
return {1, 'OK'}

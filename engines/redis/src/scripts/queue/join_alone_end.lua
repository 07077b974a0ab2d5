return taken
end
local lock = redis.call('GET', KEYS[1])
local id = string.sub(ARGV[1], 1, 32)


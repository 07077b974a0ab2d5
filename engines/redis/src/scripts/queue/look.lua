-- What the scripts without a short way begin with. ARGV 1 id
local lock = redis.call('GET', KEYS[1])
local clock = redis.call('TIME')
local id = ARGV[1]


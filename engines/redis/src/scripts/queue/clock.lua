-- Law 7: expiry is judged by the server's clock.
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]


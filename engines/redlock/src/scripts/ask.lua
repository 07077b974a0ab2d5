-- Notes that somebody asks for a hold to be released: its value ends in '?' from then on.
-- ARGV 1 id. Replies 1 if it was here, 0 if not.
local mine, shared = hold_of(ARGV[1])
if not mine then return 0 end
if not is_asked(mine) then
  if shared then
    local ends_at = redis.call('ZSCORE', lock, mine)
    redis.call('ZREM', lock, mine)
    redis.call('ZADD', lock, ends_at, mine .. '?')
  else
    redis.call('SET', lock, mine .. '?', 'KEEPTTL')
  end
end
return 1

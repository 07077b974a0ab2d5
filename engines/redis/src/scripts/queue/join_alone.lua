-- Takes a lock that nobody has, wants or has just left.
-- ARGV 2 TTL in ms, 3 weight, 4 shape, 5 '<channel> <demand> <holder>'
if held == 0 and not due and not mine then
  -- Law 8: the place is the token. It grows with the clock, and even without it.
  local place = math.max(last + 1, now)
  redis.call('HSET', queue, 'last', place, 'held', ARGV[3], 'shape', ARGV[4], 'due', now + ARGV[2] * 1000,
    'sole', ARGV[1], ARGV[1], string.format('%s %.0f %s', ARGV[3], place, ARGV[5]))
  redis.call('PEXPIRE', queue, ARGV[2] + TRACE_MS)
  return {place, 2, -1}
end


-- Leaves a lock that nobody else has or wants: only the last place stays.
if mine and sole == ARGV[1] then
  redis.call('HDEL', queue, ARGV[1], 'held', 'waiting', 'shape', 'due', 'sole')
  return 1
end


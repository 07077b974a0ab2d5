-- Frees those of many locks that are ours and that nobody waits for. KEYS the locks.
-- ARGV 1 what stands behind the id in each value; then for each, its id
-- Replies for each 1 if it was ours, 0 if not, or nothing if somebody waits.
local present, ours, replies = redis.call('MGET', unpack(KEYS)), {}, {}
for i = 1, #KEYS do
  local value = ARGV[i + 1] .. ARGV[1]
  if present[i] == value then
    ours[#ours + 1] = KEYS[i]
    replies[i] = 1
  elseif present[i] == value .. '*' then
    replies[i] = false
  else
    replies[i] = 0
  end
end
if #ours > 0 then redis.call('DEL', unpack(ours)) end
return replies

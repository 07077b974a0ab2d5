-- Shows a lock of Redisson's. KEYS 1 lock. ARGV 1 what the keys of timeouts and notes begin with
-- Replies {ms left or below 0, mode or '', then for each holder: field, hold count, ms left of a reader or -3, note or '', us
-- since the grant or below 0}, or {} if it is free or no lock. The token of ours is the time of the grant, unless the server's
-- clock was set back.
local lock, prefix = KEYS[1], ARGV[1]
local clock = redis.call('TIME')
local now_us = clock[1] * 1000000 + clock[2]
if redis.call('TYPE', lock).ok ~= 'hash' then return {} end
local mode = redis.call('HGET', lock, 'mode') or ''
local reply = {redis.call('PTTL', lock), mode}
for _, field in ipairs(redis.call('HKEYS', lock)) do
  if field ~= 'mode' then
    local thread = string.gsub(field, ':write$', '')
    local reader_ms = -3
    if mode ~= '' and thread == field then reader_ms = redis.call('PTTL', prefix .. field .. ':rwlock_timeout:1') end
    local note = redis.call('GET', prefix .. thread .. ':lockkeeper') or ''
    local token = string.match(note, '^%d+')
    local age_us = token and math.max(0, now_us - token) or -1
    for _, word in ipairs({field, redis.call('HGET', lock, field), reader_ms, note, age_us}) do reply[#reply + 1] = word end
  end
end
return reply

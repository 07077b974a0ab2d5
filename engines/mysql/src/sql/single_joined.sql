SELECT id, place FROM lockkeeper_locks FORCE INDEX (PRIMARY)
WHERE name IN ({names}) AND id IN ({ids}) AND NOT queued AND expires_at > '2000-01-01'

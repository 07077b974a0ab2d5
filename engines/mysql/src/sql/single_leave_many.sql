START TRANSACTION;
UPDATE lockkeeper_locks FORCE INDEX (PRIMARY) SET expires_at = '2000-01-01'
WHERE name IN ({names}) AND id IN ({ids}) AND NOT queued AND expires_at > '2000-01-01';
SELECT id FROM lockkeeper_locks FORCE INDEX (PRIMARY)
WHERE name IN ({names}) AND id IN ({ids}) AND NOT queued AND expires_at = '2000-01-01';
COMMIT

-- Where the claims stand, of those that are alive: 1 in the lock's row, 0 in the queue. It waits for nobody.
SELECT id, 1 AS is_single FROM lockkeeper_locks FORCE INDEX (PRIMARY)
WHERE name IN ({names}) AND id IN ({ids}) AND expires_at > SYSDATE(6)
UNION ALL
SELECT id, 0 FROM lockkeeper_claims WHERE id IN ({ids}) AND expires_at > SYSDATE(6)

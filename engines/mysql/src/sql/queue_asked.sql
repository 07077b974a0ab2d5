SELECT id FROM lockkeeper_locks FORCE INDEX (PRIMARY)
WHERE name IN ({names}) AND id IN ({ids}) AND asked = id AND expires_at > SYSDATE(6)
UNION ALL
SELECT id FROM lockkeeper_claims WHERE id IN ({ids}) AND asked = id AND expires_at > SYSDATE(6)

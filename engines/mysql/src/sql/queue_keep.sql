-- Law 2: a claim that has expired is not renewed, even if nobody has removed it yet. A claim in the lock's row may move to the
-- queue meanwhile, but not back: it is found in one of the two, and in one transaction only once.
START TRANSACTION;
UPDATE lockkeeper_locks FORCE INDEX (PRIMARY) SET expires_at = SYSDATE(6) + INTERVAL {ttl_us} MICROSECOND
WHERE name IN ({names}) AND id IN ({ids}) AND expires_at > SYSDATE(6);
UPDATE lockkeeper_claims SET expires_at = SYSDATE(6) + INTERVAL {ttl_us} MICROSECOND,
    granted_at = COALESCE(granted_at, SYSDATE(6) - INTERVAL CASE id {held_us} END MICROSECOND)
WHERE id IN ({ids}) AND expires_at > SYSDATE(6);
COMMIT

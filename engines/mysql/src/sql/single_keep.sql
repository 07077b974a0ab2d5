-- A claim in the lock's row may move to the queue meanwhile, but not back: it is found in one of the two, and in one transaction
-- only once. It waits for those that have the row, so only for claims that stand there.
START TRANSACTION;
UPDATE lockkeeper_locks FORCE INDEX (PRIMARY) SET expires_at = SYSDATE(6) + INTERVAL {ttl_us} MICROSECOND
WHERE name IN ({names}) AND id IN ({ids}) AND expires_at > SYSDATE(6);

-- In this order: a claim in the lock's row may move to the queue meanwhile, but not back.
UPDATE lockkeeper_locks FORCE INDEX (PRIMARY) SET asked = id
WHERE name IN ({names}) AND id IN ({ids}) AND expires_at > SYSDATE(6);
UPDATE lockkeeper_claims SET asked = id WHERE id IN ({ids}) AND expires_at > SYSDATE(6);

-- Optimistic, without a lock: no row changed means that somebody else has written since the version was read.
-- Parameters: amount, id, the version that was read.
UPDATE stock SET amount = $1, version = version + 1 WHERE id = $2 AND version = $3;

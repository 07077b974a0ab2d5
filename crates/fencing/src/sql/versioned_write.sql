-- Optimistic, without a lock: no row changed means that somebody else has written since the version was read.
UPDATE stock SET amount = $3, version = version + 1 WHERE id = $1 AND version = $2;

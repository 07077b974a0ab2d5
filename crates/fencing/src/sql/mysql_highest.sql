-- Larger than one's own token: it is stale, so roll back. The row is locked since the statement before.
SELECT token FROM lockkeeper_fences WHERE resource = ? FOR UPDATE;

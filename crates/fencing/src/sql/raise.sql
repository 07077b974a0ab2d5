-- SQLite and PostgreSQL, first in the transaction that reads or writes the resource. One row changed: go on. None: the
-- token is stale, so roll back. The row stays locked until the transaction ends, so no later holder comes between.
INSERT INTO lockkeeper_fences (resource, token) VALUES ($1, $2)
ON CONFLICT (resource) DO UPDATE SET token = excluded.token WHERE lockkeeper_fences.token <= excluded.token;

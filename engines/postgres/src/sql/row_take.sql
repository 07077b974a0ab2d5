-- Inserts the row, or takes over one that has expired; no row comes back if another claim has it. A plain statement: a
-- function would cost a fifth of the pair.
--
-- Law 8: a token taken before the row is ours could be written after a later one. So only one at a time takes a
-- token for this lock; the subquery comes first, and OFFSET 0 keeps it one.
INSERT INTO lockkeeper_rows AS lock (name, id, token, who, host, process, thread, locked_at, expires_at)
SELECT $1::text, $2::text, nextval('lockkeeper_token'), $3::text, $4::text, $5::bigint, $6::text, clock_timestamp(),
    clock_timestamp() + $7::float8 * interval '1 millisecond'
FROM (SELECT pg_advisory_xact_lock(hashtextextended($1, 1)) OFFSET 0) AS alone
ON CONFLICT (name) DO UPDATE SET
    id = excluded.id, token = excluded.token, who = excluded.who, host = excluded.host,
    process = excluded.process, thread = excluded.thread,
    locked_at = excluded.locked_at, expires_at = excluded.expires_at
WHERE lock.expires_at <= clock_timestamp()
RETURNING token

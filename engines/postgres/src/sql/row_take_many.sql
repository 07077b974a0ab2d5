-- Takes those of many locks that are free, in one commit; says which. It waits for no other statement: a lock that is
-- being taken at this moment is left out, and so is one that is taken, even if it has expired. A claim that is left out is
-- tried by itself (row_take.sql).
--
-- Law 8: as there, a token only for one who excludes the others; the subquery comes first, and OFFSET 0 keeps it one.
INSERT INTO lockkeeper_rows (name, id, token, who, host, process, thread, locked_at, expires_at)
SELECT name, id, nextval('lockkeeper_token'), who, host, process, thread, clock_timestamp(),
    clock_timestamp() + ttl_ms * interval '1 millisecond'
FROM (
    SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::text[], $7::float8[])
        AS taking (name, id, who, host, process, thread, ttl_ms)
    WHERE pg_try_advisory_xact_lock(hashtextextended(name, 1)) OFFSET 0
) AS alone
ON CONFLICT (name) DO NOTHING
RETURNING id, token

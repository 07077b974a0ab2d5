-- Asks every keeper of this style ($1 the channel, $2 the request), and counts those that will reply: each has
-- registered with a shared advisory lock ($3 the style).
SELECT pg_notify($1, $2), (
    SELECT count(*) FROM pg_locks
    WHERE locktype = 'advisory' AND objsubid = 2 AND classid::bigint = 1819046763 AND objid::bigint = $3
    AND granted AND mode = 'ShareLock'
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
) AS present

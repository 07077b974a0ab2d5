-- The token only for the one who got the lock, in the same round trip.
SELECT CASE WHEN pg_try_advisory_lock(hashtextextended($1, 0)) THEN nextval('lockkeeper_token') END AS token,
    pg_backend_pid() AS backend

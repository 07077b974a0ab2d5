-- Waits for the lock, and only then takes the token: CASE evaluates the one before the other. What pg_advisory_lock returns
-- is void, whose text is empty and never NULL.
SELECT CASE WHEN pg_advisory_lock(hashtextextended($1, 0))::text IS NOT NULL THEN nextval('lockkeeper_token') END AS token,
    pg_backend_pid() AS backend

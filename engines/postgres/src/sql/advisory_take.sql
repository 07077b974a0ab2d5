-- The token only for the one who got the lock, in the same round trip; -1 if the request reaches another process
-- than ours (:backend), which is not to take anything.
SELECT CASE WHEN pg_backend_pid() <> :backend THEN -1
    WHEN pg_try_advisory_lock(hashtextextended($1, 0)) THEN nextval('lockkeeper_token') END

-- The hash of a name, and the function that frees its lock.
SELECT hashtextextended($1, 0), 'pg_catalog.pg_advisory_unlock(bigint)'::regprocedure::oid::bigint

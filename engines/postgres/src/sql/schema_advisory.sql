-- The advisory style: the lock itself is pg_advisory_lock(hashtextextended(NAME, 0)), so anybody can take it
-- in psql, too.

-- For programs of 0.1.0 on the same database, which wait by this: takes the token only after the lock.
CREATE OR REPLACE FUNCTION lockkeeper_advisory_wait(p_name text)
RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_lock(hashtextextended(p_name, 0));
    RETURN nextval('lockkeeper_token');
END $$;

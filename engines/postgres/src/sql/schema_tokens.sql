-- One sequence gives the tokens of all locks: it needs no room for idle ones, and is only used by a claim
-- that has the lock already, so it grows in the order of grants (Law 8).

CREATE SEQUENCE IF NOT EXISTS lockkeeper_token;

-- Every connection begins with this. After a failover to a standby that lagged behind, a restore, or a crash before
-- which some connections did not wait for the disk, the sequence may have gone back. The server's time in microseconds
-- puts it ahead of everything that was given, since no server gives a million tokens a second; and if the
-- clock has gone back, too, the million does that were skipped.
CREATE OR REPLACE FUNCTION lockkeeper_raise_tokens()
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    -- One at a time, or a slow one could set it back.
    PERFORM pg_advisory_xact_lock(hashtextextended('lockkeeper tokens', 0));
    -- The raise itself waits for the disk on every connection.
    PERFORM set_config('synchronous_commit', 'on', true);
    PERFORM setval('lockkeeper_token',
        greatest((extract(epoch FROM clock_timestamp()) * 1000000)::bigint, last_value + 1000000))
    FROM lockkeeper_token;
END $$;

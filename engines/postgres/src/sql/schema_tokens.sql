-- One sequence gives the tokens of all locks: it needs no room for idle ones, and is only asked by a claim
-- that has the lock already, so it grows in the order of grants (Law 8).

CREATE SEQUENCE IF NOT EXISTS lockkeeper_token;

-- Every connection begins with this. After a failover to a standby that lagged behind, or a restore, the
-- sequence may have gone back: the server's time puts it ahead of everything that was handed out.
CREATE OR REPLACE FUNCTION lockkeeper_raise_tokens()
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    now_us bigint := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
BEGIN
    -- One at a time, or a slow one could set it back.
    PERFORM pg_advisory_xact_lock(hashtextextended('lockkeeper tokens', 0));
    IF (SELECT last_value FROM lockkeeper_token) < now_us - 60000000 THEN
        PERFORM setval('lockkeeper_token', now_us);
    END IF;
END $$;

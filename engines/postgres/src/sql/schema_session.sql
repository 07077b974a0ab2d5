-- The session style: a row per lock, held by the open transaction that has selected it for update.

CREATE TABLE IF NOT EXISTS lockkeeper_sessions (
    name text COLLATE "C" PRIMARY KEY,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Takes the row if nobody has it. `o_known` is false if there is no such row: it must be inserted (and that
-- committed) before, for a row inserted by the holder's own transaction would be invisible to the others.
CREATE OR REPLACE FUNCTION lockkeeper_session_take(p_name text, OUT o_known boolean, OUT o_token bigint)
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM lockkeeper_sessions WHERE name = p_name FOR UPDATE SKIP LOCKED;
    o_known := FOUND;
    IF FOUND THEN
        o_token := nextval('lockkeeper_token');
    ELSE
        o_known := EXISTS (SELECT FROM lockkeeper_sessions WHERE name = p_name);
    END IF;
END $$;

-- Takes the row as soon as nobody has it; NULL if there is no such row.
CREATE OR REPLACE FUNCTION lockkeeper_session_wait(p_name text)
RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM lockkeeper_sessions WHERE name = p_name FOR UPDATE;
    RETURN CASE WHEN FOUND THEN nextval('lockkeeper_token') END;
END $$;

-- Removes rows of long ago that nobody has now. Who waits for one finds that it is gone and inserts it again.
CREATE OR REPLACE FUNCTION lockkeeper_session_clean(p_idle interval)
RETURNS void LANGUAGE sql AS $$
    DELETE FROM lockkeeper_sessions WHERE name IN (
        SELECT name FROM lockkeeper_sessions WHERE created_at < clock_timestamp() - p_idle
        LIMIT 1000 FOR UPDATE SKIP LOCKED
    )
$$;

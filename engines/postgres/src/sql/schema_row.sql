-- The row style: the row is the lock. Whoever inserts it, or takes over one that has expired, holds.

CREATE TABLE IF NOT EXISTS lockkeeper_rows (
    name text COLLATE "C" PRIMARY KEY,
    id text NOT NULL,
    token bigint NOT NULL,
    -- Who holds: free text, machine, process, thread.
    who text NOT NULL,
    host text NOT NULL,
    process bigint NOT NULL,
    thread text NOT NULL,
    locked_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL
) WITH (fillfactor = 70);

CREATE OR REPLACE FUNCTION lockkeeper_row_take(
    p_name text, p_id text, p_who text, p_host text, p_process bigint, p_thread text, p_ttl_ms bigint,
    OUT o_token bigint, OUT o_free_in_ms bigint
) LANGUAGE plpgsql AS $$
BEGIN
    -- Law 8: a token taken before the row is ours could be written after a later one. So only one at a time
    -- takes a token for this lock.
    PERFORM pg_advisory_xact_lock(hashtextextended(p_name, 1));
    INSERT INTO lockkeeper_rows AS lock
        (name, id, token, who, host, process, thread, locked_at, expires_at)
    VALUES (p_name, p_id, nextval('lockkeeper_token'), p_who, p_host, p_process, p_thread,
        clock_timestamp(), clock_timestamp() + p_ttl_ms * interval '1 millisecond')
    ON CONFLICT (name) DO UPDATE SET
        id = excluded.id, token = excluded.token, who = excluded.who, host = excluded.host,
        process = excluded.process, thread = excluded.thread,
        locked_at = excluded.locked_at, expires_at = excluded.expires_at
    WHERE lock.expires_at <= clock_timestamp()
    RETURNING token INTO o_token;
    IF o_token IS NULL THEN
        -- Law 4: a second attempt finds its own hold.
        SELECT CASE WHEN id = p_id THEN token END,
            ceil(extract(epoch FROM expires_at - clock_timestamp()) * 1000)::bigint
        INTO o_token, o_free_in_ms
        FROM lockkeeper_rows WHERE name = p_name;
    END IF;
END $$;

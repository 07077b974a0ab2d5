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

-- The queue style: one row per claim, and the functions that change them.
--
-- Every function takes an advisory lock on the lock's name until its transaction ends, so that for one lock they
-- run one after the other and places are given in the order of commits (Law 1); and it looks at the claims
-- in a LATER statement: under READ COMMITTED each statement of a function sees what was committed before it
-- began, and a statement that waited would still see the past.

CREATE TABLE IF NOT EXISTS lockkeeper_claims (
    name text COLLATE "C" NOT NULL,
    place bigint NOT NULL,
    id text COLLATE "C" NOT NULL,
    demand text NOT NULL,
    weight bigint NOT NULL,
    room bigint NOT NULL,
    -- The number of permits there are, or 0 for a mutex or read-write lock.
    permits bigint NOT NULL,
    holder text NOT NULL,
    channel text NOT NULL,
    joined_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    -- When it was granted, for those who look; null while it waits, and until its first renewal as a hold if it had to wait.
    granted_at timestamptz,
    -- Somebody asks for it to be released.
    asked boolean NOT NULL DEFAULT false,
    -- The only index: keepers know the places of their claims.
    PRIMARY KEY (name, place)
) WITH (fillfactor = 70);

-- Version 2 had no such columns.
ALTER TABLE lockkeeper_claims ADD COLUMN IF NOT EXISTS granted_at timestamptz;
ALTER TABLE lockkeeper_claims ADD COLUMN IF NOT EXISTS asked boolean NOT NULL DEFAULT false;

-- Notifies those claims that fit now and did not fit while `p_freed` more stood before `p_from` (Law 10). Holders
-- are a prefix of the queue, so it ends at the first claim that does not fit.
CREATE OR REPLACE FUNCTION lockkeeper_wake(p_name text, p_from bigint, p_freed bigint)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    claim record;
    ahead bigint := 0;
BEGIN
    FOR claim IN
        SELECT id, place, weight, room, channel FROM lockkeeper_claims WHERE name = p_name ORDER BY place
    LOOP
        EXIT WHEN ahead + claim.weight > claim.room;
        IF claim.place > p_from AND ahead + p_freed + claim.weight > claim.room THEN
            PERFORM pg_notify(claim.channel, claim.id || ' ' || ahead);
        END IF;
        ahead := ahead + claim.weight;
    END LOOP;
END $$;

-- Removes the expired claims of a lock that the caller has locked, and notifies the claims that fit now. Only a deleted
-- row counts as dead (Law 2): a renewal under way keeps its row locked, and that row is left alone here.
CREATE OR REPLACE FUNCTION lockkeeper_prune(p_name text)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM lockkeeper_claims WHERE name = p_name AND place IN (
        SELECT place FROM lockkeeper_claims
        WHERE name = p_name AND expires_at <= clock_timestamp()
        FOR UPDATE SKIP LOCKED
    );
    IF FOUND THEN
        PERFORM lockkeeper_wake(p_name, 0, 1000000000000000000);
    END IF;
END $$;

-- Appends the claim or finds its place, and looks. Nothing is appended if the oldest claim's shape is another
-- (Law 6): then `o_ruling` is that claim's demand.
CREATE OR REPLACE FUNCTION lockkeeper_join(
    p_name text, p_id text, p_demand text, p_weight bigint, p_room bigint, p_permits bigint,
    p_holder text, p_channel text, p_ttl_ms bigint,
    OUT o_place bigint, OUT o_ahead bigint, OUT o_free_in_ms bigint, OUT o_ruling text
) LANGUAGE plpgsql AS $$
DECLARE
    first_expiry timestamptz;
    own_place bigint;
    ruling_permits bigint;
BEGIN
    -- An expression costs a tenth of a statement, and hardly anybody has to wait here.
    IF NOT pg_try_advisory_xact_lock(hashtextextended(p_name, 2)) THEN
        PERFORM pg_advisory_xact_lock(hashtextextended(p_name, 2));
    END IF;

    -- Most locks are free, and then this is all.
    INSERT INTO lockkeeper_claims
        (name, place, id, demand, weight, room, permits, holder, channel, joined_at, expires_at, granted_at)
    SELECT p_name, nextval('lockkeeper_token'), p_id, p_demand, p_weight, p_room, p_permits, p_holder, p_channel,
        clock_timestamp(), clock_timestamp() + p_ttl_ms * interval '1 millisecond', clock_timestamp()
    WHERE NOT EXISTS (SELECT FROM lockkeeper_claims WHERE name = p_name)
    RETURNING place INTO o_place;
    IF FOUND THEN
        o_ahead := 0;
        RETURN;
    END IF;

    IF EXISTS (SELECT FROM lockkeeper_claims WHERE name = p_name AND expires_at <= clock_timestamp()) THEN
        PERFORM lockkeeper_prune(p_name);
    END IF;
    SELECT place INTO own_place FROM lockkeeper_claims WHERE name = p_name AND id = p_id;
    SELECT coalesce(sum(weight), 0)::bigint, min(expires_at) INTO o_ahead, first_expiry
    FROM lockkeeper_claims WHERE name = p_name AND (own_place IS NULL OR place < own_place);
    o_free_in_ms := ceil(extract(epoch FROM first_expiry - clock_timestamp()) * 1000)::bigint;
    IF own_place IS NOT NULL THEN
        o_place := own_place;
        RETURN;
    END IF;
    SELECT demand, permits INTO o_ruling, ruling_permits
    FROM lockkeeper_claims WHERE name = p_name ORDER BY place LIMIT 1;
    IF ruling_permits <> p_permits THEN
        RETURN;
    END IF;
    o_ruling := NULL;
    INSERT INTO lockkeeper_claims
        (name, place, id, demand, weight, room, permits, holder, channel, joined_at, expires_at, granted_at)
    VALUES (p_name, nextval('lockkeeper_token'), p_id, p_demand, p_weight, p_room, p_permits, p_holder, p_channel,
        clock_timestamp(), clock_timestamp() + p_ttl_ms * interval '1 millisecond',
        CASE WHEN o_ahead + p_weight <= p_room THEN clock_timestamp() END)
    RETURNING place INTO o_place;
END $$;

-- Removes the claim, wherever it stands, and notifies the claims that fit now. Its place is 0 if that is not known.
CREATE OR REPLACE FUNCTION lockkeeper_leave(p_name text, p_place bigint, p_id text)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    gone_place bigint := p_place;
    gone_weight bigint;
BEGIN
    -- Two that leave at once would each still count the other, and notify nobody.
    IF NOT pg_try_advisory_xact_lock(hashtextextended(p_name, 2)) THEN
        PERFORM pg_advisory_xact_lock(hashtextextended(p_name, 2));
    END IF;
    IF p_place = 0 THEN
        SELECT place INTO gone_place FROM lockkeeper_claims WHERE name = p_name AND id = p_id;
    END IF;
    DELETE FROM lockkeeper_claims WHERE name = p_name AND place = gone_place AND id = p_id
    RETURNING weight INTO gone_weight;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF EXISTS (SELECT FROM lockkeeper_claims WHERE name = p_name) THEN
        PERFORM lockkeeper_wake(p_name, gone_place, gone_weight);
    END IF;
    RETURN true;
END $$;

-- Lets a holder take less room and notifies the claims that fit now; false if the claim is gone.
CREATE OR REPLACE FUNCTION lockkeeper_shrink(
    p_name text, p_place bigint, p_id text, p_demand text, p_weight bigint
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    old_weight bigint;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended(p_name, 2));
    SELECT weight INTO old_weight FROM lockkeeper_claims
    WHERE name = p_name AND place = p_place AND id = p_id AND expires_at > clock_timestamp() FOR UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    UPDATE lockkeeper_claims SET demand = p_demand, weight = p_weight WHERE name = p_name AND place = p_place;
    PERFORM lockkeeper_wake(p_name, p_place, old_weight - p_weight);
    RETURN true;
END $$;

-- Removes the expired claims of a lock and notifies the claims that fit now.
CREATE OR REPLACE FUNCTION lockkeeper_sweep(p_name text)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended(p_name, 2));
    PERFORM lockkeeper_prune(p_name);
END $$;

-- Removes claims that died long ago on locks that nobody has used since. (Nothing else is left of an idle lock.)
CREATE OR REPLACE FUNCTION lockkeeper_clean(p_idle interval)
RETURNS void LANGUAGE sql AS $$
    DELETE FROM lockkeeper_claims WHERE (name, place) IN (
        SELECT name, place FROM lockkeeper_claims WHERE expires_at < clock_timestamp() - p_idle
        LIMIT 1000 FOR UPDATE SKIP LOCKED
    )
$$;

-- The row style: the row is the lock. The claim that inserts it, or takes over one that has expired, holds.

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
    expires_at timestamptz NOT NULL,
    -- The claim that somebody asks for: of the one that holds, it means that it is to be released.
    asked text
) WITH (fillfactor = 70);

-- Version 2 had no such column.
ALTER TABLE lockkeeper_rows ADD COLUMN IF NOT EXISTS asked text;

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

-- The advisory style: the lock itself is pg_advisory_lock(hashtextextended(NAME, 0)), so anybody can take it
-- in psql, too.

-- Waits for the lock, and only then takes the token: two statements, so that their order is certain.
CREATE OR REPLACE FUNCTION lockkeeper_advisory_wait(p_name text)
RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_lock(hashtextextended(p_name, 0));
    RETURN nextval('lockkeeper_token');
END $$;

-- Which version of its tables and functions a style has. A program refuses to work with a newer version than it knows, and
-- replaces an older one.

CREATE TABLE IF NOT EXISTS lockkeeper_schema (
    style text PRIMARY KEY,
    version bigint NOT NULL
);

INSERT INTO lockkeeper_schema (style, version) VALUES ('queue', 3), ('row', 3), ('session', 3), ('advisory', 3);

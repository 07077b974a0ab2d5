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
-- row counts as dead (Law 2): a renewal under way keeps its row locked, and that row is left alone here. The keepers of the
-- dead are notified, too: after this server's clock was set forward they would else believe until their next renewal.
CREATE OR REPLACE FUNCTION lockkeeper_prune(p_name text)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    dead record;
    is_any boolean := false;
BEGIN
    FOR dead IN
        DELETE FROM lockkeeper_claims WHERE name = p_name AND place IN (
            SELECT place FROM lockkeeper_claims
            WHERE name = p_name AND expires_at <= clock_timestamp()
            FOR UPDATE SKIP LOCKED
        ) RETURNING id, channel
    LOOP
        is_any := true;
        PERFORM pg_notify(dead.channel, '-' || dead.id);
    END LOOP;
    IF is_any THEN
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

-- Joins of many claims in one commit, in the order of their names. Most locks are free: one statement appends to all that
-- are. The others go one by one.
CREATE OR REPLACE FUNCTION lockkeeper_join_many(
    p_names text[], p_ids text[], p_demands text[], p_weights bigint[], p_rooms bigint[], p_permits bigint[],
    p_holders text[], p_channel text, p_ttls_ms bigint[]
) RETURNS TABLE (id text, o_place bigint, o_ahead bigint, o_free_in_ms bigint, o_ruling text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    appended text[];
    places bigint[];
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended(name, 2)) FROM unnest(p_names) AS name;

    WITH joined AS (
        INSERT INTO lockkeeper_claims
            (name, place, id, demand, weight, room, permits, holder, channel, joined_at, expires_at, granted_at)
        SELECT name, nextval('lockkeeper_token'), id, demand, weight, room, permits, holder, p_channel,
            clock_timestamp(), clock_timestamp() + ttl_ms * interval '1 millisecond', clock_timestamp()
        FROM (
            -- Of several that want the same lock one finds it free.
            SELECT DISTINCT ON (name COLLATE "C") *
            FROM unnest(p_names, p_ids, p_demands, p_weights, p_rooms, p_permits, p_holders, p_ttls_ms)
                AS joining (name, id, demand, weight, room, permits, holder, ttl_ms)
        ) AS joining
        WHERE NOT EXISTS (SELECT FROM lockkeeper_claims AS claim WHERE claim.name = joining.name)
        RETURNING id, place
    )
    SELECT array_agg(id), array_agg(place) INTO appended, places FROM joined;
    RETURN QUERY SELECT one.id, one.place, 0::bigint, NULL::bigint, NULL::text
    FROM unnest(appended, places) AS one (id, place);
    IF cardinality(appended) = cardinality(p_ids) THEN
        RETURN;
    END IF;

    RETURN QUERY SELECT joining.id, found.*
    FROM unnest(p_names, p_ids, p_demands, p_weights, p_rooms, p_permits, p_holders, p_ttls_ms)
        AS joining (name, id, demand, weight, room, permits, holder, ttl_ms),
        LATERAL lockkeeper_join(joining.name, joining.id, joining.demand, joining.weight, joining.room,
            joining.permits, joining.holder, p_channel, joining.ttl_ms) AS found
    WHERE joining.id <> ALL (coalesce(appended, '{}'));
END $$;

-- Removes many claims in one commit, in the order of their names and places, and notifies the claims that fit now;
-- returns those that were there. All places are known.
CREATE OR REPLACE FUNCTION lockkeeper_leave_many(p_names text[], p_places bigint[], p_ids text[])
RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    gone_ids text[];
    gone_names text[];
    gone_places bigint[];
    gone_weights bigint[];
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended(name, 2)) FROM unnest(p_names) AS name;

    -- Whatever the plan, rows are found through the index or in the order of the arrays: both are that of queue_keep.sql,
    -- so that no two statements wait for each other.
    WITH gone AS (
        DELETE FROM lockkeeper_claims AS claim
        USING unnest(p_names, p_places, p_ids) AS leaving (name, place, id)
        WHERE claim.name = leaving.name AND claim.place = leaving.place AND claim.id = leaving.id
        RETURNING claim.id, claim.name, claim.place, claim.weight
    )
    SELECT array_agg(id), array_agg(name), array_agg(place), array_agg(weight)
    INTO gone_ids, gone_names, gone_places, gone_weights FROM gone;

    -- What several of one lock have freed counts together: a claim may fit only because all of them have left.
    PERFORM lockkeeper_wake(gone.name, min(gone.place), sum(gone.weight)::bigint)
    FROM unnest(gone_names, gone_places, gone_weights) AS gone (name, place, weight)
    WHERE EXISTS (SELECT FROM lockkeeper_claims AS claim WHERE claim.name = gone.name)
    GROUP BY gone.name;
    RETURN QUERY SELECT unnest(gone_ids);
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

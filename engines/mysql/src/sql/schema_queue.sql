-- The queue style: one row per lock in use, one row per claim, and the procedures that change them.
--
-- Every procedure takes the lock's row first, so that for one lock they run one after the other and places are
-- given in the order of commits (Law 1). All of it needs READ COMMITTED: then each statement sees what was
-- committed before it began. Names are bytes, so that nothing is padded or folded.

CREATE TABLE IF NOT EXISTS lockkeeper_locks (
    name VARBINARY(640) NOT NULL PRIMARY KEY,
    -- The last place given, never less than the server's time in microseconds at that moment: so a row
    -- that was removed after long disuse begins again above where it ended (Law 8).
    last_place BIGINT NOT NULL,
    -- Whether the lock's claims stand in lockkeeper_claims. If not, there is one at most, and it stands here, as long as it
    -- has not expired: so to lock and unlock what nobody else wants is one write each.
    queued BOOLEAN NOT NULL,
    place BIGINT NOT NULL DEFAULT 0,
    id CHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '',
    demand VARCHAR(32) CHARACTER SET ascii NOT NULL DEFAULT '',
    weight BIGINT NOT NULL DEFAULT 0,
    room BIGINT NOT NULL DEFAULT 0,
    permits BIGINT NOT NULL DEFAULT 0,
    holder VARCHAR(2000) CHARACTER SET utf8mb4 NOT NULL DEFAULT '',
    bell VARCHAR(64) CHARACTER SET ascii NOT NULL DEFAULT '',
    joined_at DATETIME(6) NOT NULL DEFAULT '2000-01-01',
    -- Long ago if nobody stands here.
    expires_at DATETIME(6) NOT NULL DEFAULT '2000-01-01'
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS lockkeeper_claims (
    name VARBINARY(640) NOT NULL,
    place BIGINT NOT NULL,
    id CHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    demand VARCHAR(32) CHARACTER SET ascii NOT NULL,
    weight BIGINT NOT NULL,
    room BIGINT NOT NULL,
    -- The number of permits there are, or 0 for a mutex or read-write lock.
    permits BIGINT NOT NULL,
    holder TEXT CHARACTER SET utf8mb4 NOT NULL,
    -- The user lock of the keeper's connection that waits: whose query to kill when the claim fits.
    bell VARCHAR(64) CHARACTER SET ascii NOT NULL,
    joined_at DATETIME(6) NOT NULL,
    expires_at DATETIME(6) NOT NULL,
    PRIMARY KEY (name, place),
    UNIQUE KEY (id)
) ENGINE = InnoDB;

-- Version 2 had no such columns. (MySQL, as opposed to MariaDB, does not know 'if not exists' here.)
-- When it was granted, shown to operators; null while it waits, and until its first renewal as a hold if it had to wait.
ALTER TABLE lockkeeper_claims ADD COLUMN /*M! IF NOT EXISTS */ granted_at DATETIME(6) NULL;
-- Its id if somebody asks for it to be released.
ALTER TABLE lockkeeper_claims
    ADD COLUMN /*M! IF NOT EXISTS */ asked CHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '';
-- The claim that somebody asks for: of the one that stands here, it means that it is to be released.
ALTER TABLE lockkeeper_locks
    ADD COLUMN /*M! IF NOT EXISTS */ asked CHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '';

DELIMITER //

-- Wakes the keepers in the list. Each is a user lock, held by a connection whose query waits: to kill that query wakes
-- the keeper. The lock proves that the connection is the right one, whatever was restarted.
DROP PROCEDURE IF EXISTS lockkeeper_ring //
CREATE PROCEDURE lockkeeper_ring(p_bells TEXT)
SQL SECURITY INVOKER
BEGIN
    DECLARE v_bell VARCHAR(64);
    DECLARE v_connection BIGINT;
    -- The keeper may be gone at that moment; its claims will expire.
    DECLARE CONTINUE HANDLER FOR 1094, 1095 BEGIN END;
    WHILE p_bells <> '' DO
        SET v_bell = SUBSTRING_INDEX(p_bells, ',', 1);
        SET p_bells = SUBSTRING(p_bells, CHAR_LENGTH(v_bell) + 2);
        SET v_connection = IS_USED_LOCK(v_bell);
        IF v_connection IS NOT NULL THEN
            KILL QUERY v_connection;
        END IF;
    END WHILE;
END //

-- The wake locks of those claims that fit now and did not fit while `p_freed` more stood before `p_from` (Law 10).
-- Holders are a prefix of the queue, so it ends at the first claim that does not fit.
DROP PROCEDURE IF EXISTS lockkeeper_fitting //
CREATE PROCEDURE lockkeeper_fitting(p_name VARBINARY(640), p_from BIGINT, p_freed BIGINT, OUT o_bells TEXT)
SQL SECURITY INVOKER
BEGIN
    DECLARE v_ahead, v_last BIGINT DEFAULT 0;
    DECLARE v_place, v_weight, v_room BIGINT;
    DECLARE v_bell VARCHAR(64);
    DECLARE v_done BOOLEAN DEFAULT FALSE;
    DECLARE CONTINUE HANDLER FOR NOT FOUND SET v_done = TRUE;
    SET o_bells = '';
    queue: LOOP
        SELECT place, weight, room, bell INTO v_place, v_weight, v_room, v_bell
        FROM lockkeeper_claims WHERE name = p_name AND place > v_last ORDER BY place LIMIT 1;
        IF v_done OR v_ahead + v_weight > v_room THEN
            LEAVE queue;
        END IF;
        IF v_place > p_from AND v_ahead + p_freed + v_weight > v_room AND NOT FIND_IN_SET(v_bell, o_bells) THEN
            SET o_bells = IF(o_bells = '', v_bell, CONCAT(o_bells, ',', v_bell));
        END IF;
        SET v_ahead = v_ahead + v_weight, v_last = v_place;
    END LOOP;
END //

-- From now on the lock's claims stand in lockkeeper_claims, the one in its row, too. The caller has taken the lock's row.
DROP PROCEDURE IF EXISTS lockkeeper_unfold //
CREATE PROCEDURE lockkeeper_unfold(p_name VARBINARY(640))
SQL SECURITY INVOKER
BEGIN
    INSERT INTO lockkeeper_claims
        (name, place, id, demand, weight, room, permits, holder, bell, joined_at, expires_at, granted_at, asked)
    SELECT name, place, id, demand, weight, room, permits, holder, bell, joined_at, expires_at, joined_at, asked
    FROM lockkeeper_locks WHERE name = p_name AND NOT queued AND expires_at > SYSDATE(6);
    UPDATE lockkeeper_locks SET queued = TRUE, id = '', expires_at = '2000-01-01' WHERE name = p_name;
END //

-- Appends the claim or finds its place, and looks. Nothing is appended if the oldest claim's shape is another
-- (Law 6): then `ruling` is that claim's demand.
DROP PROCEDURE IF EXISTS lockkeeper_join //
CREATE PROCEDURE lockkeeper_join(
    p_name VARBINARY(640), p_id CHAR(32) CHARACTER SET ascii, p_demand VARCHAR(32), p_weight BIGINT, p_room BIGINT,
    p_permits BIGINT, p_holder TEXT CHARACTER SET utf8mb4, p_bell VARCHAR(64), p_ttl_us BIGINT
)
SQL SECURITY INVOKER
BEGIN
    DECLARE v_queued BOOLEAN;
    DECLARE v_ahead, v_own, v_permits BIGINT;
    DECLARE v_expiry DATETIME(6);
    DECLARE v_ruling VARCHAR(32) DEFAULT NULL;
    DECLARE v_bells TEXT DEFAULT '';
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;

    START TRANSACTION;
    -- Takes the lock's row, and with LAST_INSERT_ID() remembers the place.
    INSERT INTO lockkeeper_locks (name, last_place, queued)
    VALUES (p_name, LAST_INSERT_ID(CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)), TRUE)
    ON DUPLICATE KEY UPDATE last_place = LAST_INSERT_ID(GREATEST(last_place + 1, VALUES(last_place)));
    SELECT queued INTO v_queued FROM lockkeeper_locks WHERE name = p_name;
    IF NOT v_queued THEN
        CALL lockkeeper_unfold(p_name);
    END IF;
    IF EXISTS (SELECT 1 FROM lockkeeper_claims WHERE name = p_name AND expires_at <= SYSDATE(6)) THEN
        -- Only a deleted row counts as dead (Law 2).
        DELETE FROM lockkeeper_claims WHERE name = p_name AND expires_at <= SYSDATE(6);
        CALL lockkeeper_fitting(p_name, 0, 1000000000000000000, v_bells);
    END IF;
    SELECT MAX(place) INTO v_own FROM lockkeeper_claims WHERE name = p_name AND id = p_id;
    SELECT COALESCE(SUM(weight), 0), MIN(expires_at) INTO v_ahead, v_expiry
    FROM lockkeeper_claims WHERE name = p_name AND (v_own IS NULL OR place < v_own);
    IF v_own IS NULL AND v_ahead > 0 THEN
        SELECT demand, permits INTO v_ruling, v_permits
        FROM lockkeeper_claims WHERE name = p_name ORDER BY place LIMIT 1;
        IF v_permits = p_permits THEN
            SET v_ruling = NULL;
        END IF;
    END IF;
    IF v_own IS NULL AND v_ruling IS NULL THEN
        INSERT INTO lockkeeper_claims
            (name, place, id, demand, weight, room, permits, holder, bell, joined_at, expires_at, granted_at)
        VALUES (p_name, LAST_INSERT_ID(), p_id, p_demand, p_weight, p_room, p_permits, p_holder, p_bell,
            SYSDATE(6), SYSDATE(6) + INTERVAL p_ttl_us MICROSECOND, IF(v_ahead + p_weight <= p_room, SYSDATE(6), NULL));
    END IF;
    COMMIT;
    IF v_bells <> '' THEN
        CALL lockkeeper_ring(v_bells);
    END IF;
    SELECT COALESCE(v_own, LAST_INSERT_ID()) AS place, v_ahead AS ahead,
        CAST(TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), v_expiry) AS SIGNED) AS free_in_us, v_ruling AS ruling;
END //

-- Removes the claim, wherever it stands, and wakes those that fit now. Says, too, whether the lock is free now.
DROP PROCEDURE IF EXISTS lockkeeper_leave //
CREATE PROCEDURE lockkeeper_leave(p_name VARBINARY(640), p_id CHAR(32) CHARACTER SET ascii)
SQL SECURITY INVOKER
BEGIN
    DECLARE v_queued, v_alone BOOLEAN DEFAULT FALSE;
    DECLARE v_place, v_weight, v_last BIGINT;
    DECLARE v_bells TEXT DEFAULT '';
    DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;

    START TRANSACTION;
    -- Two that leave at once would each still count the other, and wake nobody.
    SELECT queued, id = p_id AND expires_at > '2000-01-01' INTO v_queued, v_alone
    FROM lockkeeper_locks WHERE name = p_name FOR UPDATE;
    IF v_alone THEN
        UPDATE lockkeeper_locks SET id = '', expires_at = '2000-01-01' WHERE name = p_name;
    ELSEIF v_queued THEN
        SELECT place, weight INTO v_place, v_weight FROM lockkeeper_claims WHERE id = p_id AND name = p_name;
        IF v_place IS NOT NULL THEN
            DELETE FROM lockkeeper_claims WHERE name = p_name AND place = v_place AND id = p_id;
            SELECT MAX(place) INTO v_last FROM lockkeeper_claims WHERE name = p_name;
            IF v_last IS NULL THEN
                UPDATE lockkeeper_locks SET queued = FALSE WHERE name = p_name;
            ELSE
                CALL lockkeeper_fitting(p_name, v_place, v_weight, v_bells);
            END IF;
        END IF;
    END IF;
    COMMIT;
    IF v_bells <> '' THEN
        CALL lockkeeper_ring(v_bells);
    END IF;
    SELECT v_alone OR v_place IS NOT NULL AS left_it, v_last IS NULL AS is_free;
END //

-- Lets a holder take less room and wakes those that fit now.
DROP PROCEDURE IF EXISTS lockkeeper_shrink //
CREATE PROCEDURE lockkeeper_shrink(
    p_name VARBINARY(640), p_id CHAR(32) CHARACTER SET ascii, p_demand VARCHAR(32), p_weight BIGINT
)
SQL SECURITY INVOKER
BEGIN
    DECLARE v_queued BOOLEAN DEFAULT TRUE;
    DECLARE v_place, v_weight BIGINT DEFAULT NULL;
    DECLARE v_bells TEXT DEFAULT '';
    DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;

    START TRANSACTION;
    SELECT queued INTO v_queued FROM lockkeeper_locks WHERE name = p_name FOR UPDATE;
    IF NOT v_queued THEN
        CALL lockkeeper_unfold(p_name);
    END IF;
    SELECT place, weight INTO v_place, v_weight
    FROM lockkeeper_claims WHERE id = p_id AND expires_at > SYSDATE(6) FOR UPDATE;
    IF v_place IS NOT NULL THEN
        UPDATE lockkeeper_claims SET demand = p_demand, weight = p_weight WHERE name = p_name AND place = v_place;
        CALL lockkeeper_fitting(p_name, v_place, v_weight - p_weight, v_bells);
    END IF;
    COMMIT;
    IF v_bells <> '' THEN
        CALL lockkeeper_ring(v_bells);
    END IF;
    SELECT v_place IS NOT NULL AS shrunk;
END //

-- Removes the expired claims of a lock and wakes those that fit now.
DROP PROCEDURE IF EXISTS lockkeeper_sweep //
CREATE PROCEDURE lockkeeper_sweep(p_name VARBINARY(640))
SQL SECURITY INVOKER
BEGIN
    DECLARE v_taken BIGINT DEFAULT NULL;
    DECLARE v_bells TEXT DEFAULT '';
    DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;

    START TRANSACTION;
    SELECT last_place INTO v_taken FROM lockkeeper_locks WHERE name = p_name FOR UPDATE;
    DELETE FROM lockkeeper_claims WHERE name = p_name AND expires_at <= SYSDATE(6);
    CALL lockkeeper_fitting(p_name, 0, 1000000000000000000, v_bells);
    COMMIT;
    CALL lockkeeper_ring(v_bells);
END //

-- Removes what nobody has used for long. A join at the same time has taken the lock's row and raised its last
-- place, so that the row is then left alone.
DROP PROCEDURE IF EXISTS lockkeeper_clean //
CREATE PROCEDURE lockkeeper_clean(p_idle_seconds BIGINT)
SQL SECURITY INVOKER
BEGIN
    DELETE FROM lockkeeper_claims WHERE expires_at < SYSDATE(6) - INTERVAL p_idle_seconds SECOND LIMIT 1000;
    DELETE FROM lockkeeper_locks
    WHERE last_place < CAST((UNIX_TIMESTAMP(SYSDATE(6)) - p_idle_seconds) * 1000000 AS SIGNED)
    AND expires_at < SYSDATE(6)
    AND NOT EXISTS (SELECT 1 FROM lockkeeper_claims WHERE lockkeeper_claims.name = lockkeeper_locks.name)
    LIMIT 1000;
END //

DELIMITER ;

CREATE TABLE IF NOT EXISTS lockkeeper_schema (
    style VARCHAR(16) CHARACTER SET ascii NOT NULL PRIMARY KEY,
    version INT NOT NULL
) ENGINE = InnoDB;
-- Last, so that it says nothing before all of this is there.
INSERT INTO lockkeeper_schema VALUES ('queue', 3) ON DUPLICATE KEY UPDATE version = VALUES(version);

-- The advisory style: the lock is GET_LOCK('lk:DATABASE/NAME'), and a row says who has it and keeps the token.
--
-- User locks are the server's, not the database's, hence the database in the name. A name that is too long for
-- a user lock, or that the server could take for another one (upper case, spaces), is replaced by its hash.

CREATE TABLE IF NOT EXISTS lockkeeper_holds (
    name VARBINARY(640) NOT NULL PRIMARY KEY,
    user_lock VARCHAR(64) CHARACTER SET ascii NOT NULL,
    -- The last token given, never less than the server's time in microseconds at that moment: so a row
    -- that was removed after long disuse begins again above where it ended (Law 8).
    token BIGINT NOT NULL,
    id CHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    holder TEXT CHARACTER SET utf8mb4 NOT NULL,
    connection BIGINT NOT NULL,
    since DATETIME(6) NOT NULL
) ENGINE = InnoDB;

-- On MariaDB the tokens come from a sequence, since MySQL has none; a row is written there only for those who look. A crash of
-- the server skips what it had in its memory, and a sequence that is made anew begins with the time: tokens never go back
-- (Law 8).
/*M! EXECUTE IMMEDIATE CONCAT('CREATE SEQUENCE IF NOT EXISTS lockkeeper_tokens START WITH ',
    CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED), ' CACHE 100000 ENGINE = InnoDB') */;

-- The claims of the styles session and advisory that somebody asks for to be released. A hold's own row is locked, or written late.
CREATE TABLE IF NOT EXISTS lockkeeper_asks (
    id CHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
    asked_at DATETIME(6) NOT NULL
) ENGINE = InnoDB;

DELIMITER //

DROP PROCEDURE IF EXISTS lockkeeper_advisory_key //
CREATE PROCEDURE lockkeeper_advisory_key(p_name VARBINARY(640), OUT o_key VARCHAR(64) CHARACTER SET ascii)
SQL SECURITY INVOKER
BEGIN
    DECLARE v_full VARBINARY(800) DEFAULT CONCAT(DATABASE(), '/', p_name);
    SET o_key = IF(LENGTH(v_full) <= 61 AND CONVERT(v_full USING utf8mb4) COLLATE utf8mb4_bin REGEXP '^[a-z0-9._/-]+$',
        CONCAT('lk:', v_full), CONCAT('lk:', LEFT(SHA2(v_full, 256), 60)));
END //

-- Takes the lock, at once or within a number of seconds, and only then the token: on MySQL, which has no sequences.
DROP PROCEDURE IF EXISTS lockkeeper_advisory_take //
CREATE PROCEDURE lockkeeper_advisory_take(
    p_name VARBINARY(640), p_id CHAR(32) CHARACTER SET ascii, p_holder TEXT CHARACTER SET utf8mb4, p_wait INT
)
SQL SECURITY INVOKER
BEGIN
    DECLARE v_key VARCHAR(64) CHARACTER SET ascii;
    DECLARE v_got INT;
    DECLARE v_token BIGINT DEFAULT NULL;
    CALL lockkeeper_advisory_key(p_name, v_key);
    SET v_got = GET_LOCK(v_key, p_wait);
    IF v_got IS NULL THEN
        -- Not 'busy': the server could not say.
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'GET_LOCK returned NULL', MYSQL_ERRNO = 1317;
    END IF;
    IF v_got = 1 THEN
        INSERT INTO lockkeeper_holds (name, user_lock, token, id, holder, connection, since)
        VALUES (p_name, v_key, CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED), p_id, p_holder,
            CONNECTION_ID(), SYSDATE(6))
        ON DUPLICATE KEY UPDATE token = GREATEST(token + 1, VALUES(token)), id = VALUES(id),
            holder = VALUES(holder), connection = VALUES(connection), since = VALUES(since);
        SELECT token INTO v_token FROM lockkeeper_holds WHERE name = p_name;
    END IF;
    SELECT v_token AS token, CONNECTION_ID() AS connection;
END //

DROP PROCEDURE IF EXISTS lockkeeper_advisory_free //
CREATE PROCEDURE lockkeeper_advisory_free(p_name VARBINARY(640))
SQL SECURITY INVOKER
BEGIN
    DECLARE v_key VARCHAR(64) CHARACTER SET ascii;
    CALL lockkeeper_advisory_key(p_name, v_key);
    DO RELEASE_LOCK(v_key);
END //

-- Removes rows of long ago that nobody has now.
DROP PROCEDURE IF EXISTS lockkeeper_advisory_clean //
CREATE PROCEDURE lockkeeper_advisory_clean(p_idle_seconds BIGINT)
SQL SECURITY INVOKER
BEGIN
    DELETE FROM lockkeeper_asks WHERE asked_at < SYSDATE(6) - INTERVAL p_idle_seconds SECOND LIMIT 1000;
    DELETE FROM lockkeeper_holds
    WHERE since < SYSDATE(6) - INTERVAL p_idle_seconds SECOND AND IS_FREE_LOCK(user_lock) = 1 LIMIT 1000;
END //

DELIMITER ;

CREATE TABLE IF NOT EXISTS lockkeeper_schema (
    style VARCHAR(16) CHARACTER SET ascii NOT NULL PRIMARY KEY,
    version INT NOT NULL
) ENGINE = InnoDB;
-- Last, so that it says nothing before all of this is there.
INSERT INTO lockkeeper_schema VALUES ('advisory', 3) ON DUPLICATE KEY UPDATE version = VALUES(version);

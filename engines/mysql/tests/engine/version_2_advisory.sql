-- What the release before version 3 made for the style 'advisory'.
CREATE TABLE IF NOT EXISTS lockkeeper_holds (
    name VARBINARY(640) NOT NULL PRIMARY KEY,
    user_lock VARCHAR(64) CHARACTER SET ascii NOT NULL,
    token BIGINT NOT NULL,
    id CHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    holder TEXT CHARACTER SET utf8mb4 NOT NULL,
    connection BIGINT NOT NULL,
    since DATETIME(6) NOT NULL
) ENGINE = InnoDB;
/*M! EXECUTE IMMEDIATE CONCAT('CREATE SEQUENCE IF NOT EXISTS lockkeeper_tokens START WITH ',
    CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED), ' CACHE 100000 ENGINE = InnoDB') */;
DELIMITER //
DROP PROCEDURE IF EXISTS lockkeeper_advisory_key //
CREATE PROCEDURE lockkeeper_advisory_key(p_name VARBINARY(640), OUT o_key VARCHAR(64) CHARACTER SET ascii)
SQL SECURITY INVOKER
BEGIN
    DECLARE v_full VARBINARY(800) DEFAULT CONCAT(DATABASE(), '/', p_name);
    SET o_key = IF(LENGTH(v_full) <= 61 AND CONVERT(v_full USING utf8mb4) COLLATE utf8mb4_bin REGEXP '^[a-z0-9._/-]+$',
        CONCAT('lk:', v_full), CONCAT('lk:', LEFT(SHA2(v_full, 256), 60)));
END //
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
DROP PROCEDURE IF EXISTS lockkeeper_advisory_clean //
CREATE PROCEDURE lockkeeper_advisory_clean(p_idle_seconds BIGINT)
SQL SECURITY INVOKER
BEGIN
    DELETE FROM lockkeeper_holds
    WHERE since < SYSDATE(6) - INTERVAL p_idle_seconds SECOND AND IS_FREE_LOCK(user_lock) = 1 LIMIT 1000;
END //
DELIMITER ;
CREATE TABLE IF NOT EXISTS lockkeeper_schema (
    style VARCHAR(16) CHARACTER SET ascii NOT NULL PRIMARY KEY,
    version INT NOT NULL
) ENGINE = InnoDB;
INSERT INTO lockkeeper_schema VALUES ('advisory', 2) ON DUPLICATE KEY UPDATE version = VALUES(version);

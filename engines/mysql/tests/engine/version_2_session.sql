-- What the release before version 3 made for the style 'session'.
CREATE TABLE IF NOT EXISTS lockkeeper_sessions (
    name VARBINARY(640) NOT NULL PRIMARY KEY,
    token BIGINT NOT NULL,
    id CHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '',
    holder TEXT CHARACTER SET utf8mb4 NOT NULL,
    connection BIGINT NULL,
    since DATETIME(6) NOT NULL
) ENGINE = InnoDB;
DELIMITER //
DROP PROCEDURE IF EXISTS lockkeeper_session_take //
CREATE PROCEDURE lockkeeper_session_take(
    p_name VARBINARY(640), p_id CHAR(32) CHARACTER SET ascii, p_holder TEXT CHARACTER SET utf8mb4, p_wait BOOLEAN
)
SQL SECURITY INVOKER
BEGIN
    DECLARE v_known, v_token BIGINT DEFAULT NULL;
    DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    SELECT COUNT(*) INTO v_known FROM lockkeeper_sessions WHERE name = p_name;
    IF v_known = 0 THEN
        INSERT IGNORE INTO lockkeeper_sessions (name, token, holder, since) VALUES (p_name, 0, '', SYSDATE(6));
    END IF;
    START TRANSACTION;
    IF p_wait THEN
        SELECT token INTO v_token FROM lockkeeper_sessions WHERE name = p_name FOR UPDATE;
    ELSE
        SELECT token INTO v_token FROM lockkeeper_sessions WHERE name = p_name FOR UPDATE SKIP LOCKED;
    END IF;
    IF v_token IS NULL THEN
        ROLLBACK;
    ELSE
        SET v_token = GREATEST(v_token + 1, CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED));
        UPDATE lockkeeper_sessions
        SET token = v_token, id = p_id, holder = p_holder, connection = CONNECTION_ID(), since = SYSDATE(6)
        WHERE name = p_name;
    END IF;
    SELECT v_token AS token, CONNECTION_ID() AS connection;
END //
DROP PROCEDURE IF EXISTS lockkeeper_session_free //
CREATE PROCEDURE lockkeeper_session_free(p_name VARBINARY(640))
SQL SECURITY INVOKER
BEGIN
    UPDATE lockkeeper_sessions SET connection = NULL WHERE name = p_name AND connection = CONNECTION_ID();
    COMMIT;
END //
DROP PROCEDURE IF EXISTS lockkeeper_session_clean //
CREATE PROCEDURE lockkeeper_session_clean(p_idle_seconds BIGINT)
SQL SECURITY INVOKER
BEGIN
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    START TRANSACTION;
    DELETE FROM lockkeeper_sessions WHERE name IN (SELECT name FROM (
        SELECT name FROM lockkeeper_sessions WHERE since < SYSDATE(6) - INTERVAL p_idle_seconds SECOND
        LIMIT 1000 FOR UPDATE SKIP LOCKED
    ) AS idle);
    COMMIT;
END //
DELIMITER ;
CREATE TABLE IF NOT EXISTS lockkeeper_schema (
    style VARCHAR(16) CHARACTER SET ascii NOT NULL PRIMARY KEY,
    version INT NOT NULL
) ENGINE = InnoDB;
INSERT INTO lockkeeper_schema VALUES ('session', 2) ON DUPLICATE KEY UPDATE version = VALUES(version);

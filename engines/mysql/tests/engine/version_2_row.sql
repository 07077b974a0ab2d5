-- What the release before version 3 made for the style 'row'.
CREATE TABLE IF NOT EXISTS lockkeeper_rows (
    name VARBINARY(640) NOT NULL PRIMARY KEY,
    id CHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    token BIGINT NOT NULL,
    who VARCHAR(256) CHARACTER SET utf8mb4 NOT NULL,
    host VARCHAR(256) CHARACTER SET utf8mb4 NOT NULL,
    process BIGINT NOT NULL,
    thread VARCHAR(256) CHARACTER SET utf8mb4 NOT NULL,
    locked_at DATETIME(6) NOT NULL,
    expires_at DATETIME(6) NOT NULL
) ENGINE = InnoDB;
DELIMITER //
DROP PROCEDURE IF EXISTS lockkeeper_row_clean //
CREATE PROCEDURE lockkeeper_row_clean(p_idle_seconds BIGINT)
SQL SECURITY INVOKER
BEGIN
    DELETE FROM lockkeeper_rows
    WHERE expires_at < SYSDATE(6) - INTERVAL p_idle_seconds SECOND
    AND token < CAST((UNIX_TIMESTAMP(SYSDATE(6)) - p_idle_seconds) * 1000000 AS SIGNED)
    LIMIT 1000;
END //
DELIMITER ;
CREATE TABLE IF NOT EXISTS lockkeeper_schema (
    style VARCHAR(16) CHARACTER SET ascii NOT NULL PRIMARY KEY,
    version INT NOT NULL
) ENGINE = InnoDB;
INSERT INTO lockkeeper_schema VALUES ('row', 2) ON DUPLICATE KEY UPDATE version = VALUES(version);

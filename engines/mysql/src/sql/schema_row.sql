-- The row style: the row is the lock. A claim that inserts it, or takes over one that is free or has expired, holds.

CREATE TABLE IF NOT EXISTS lockkeeper_rows (
    name VARBINARY(640) NOT NULL PRIMARY KEY,
    -- The claim that has the lock, or had it last. A free lock's row stays for a day, since it keeps the last token.
    id CHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    -- The last token given, never less than the server's time in microseconds at that moment: so a row
    -- that was removed after long disuse begins again above where it ended (Law 8).
    token BIGINT NOT NULL,
    -- Who holds: free text, machine, process, thread.
    who VARCHAR(256) CHARACTER SET utf8mb4 NOT NULL,
    host VARCHAR(256) CHARACTER SET utf8mb4 NOT NULL,
    process BIGINT NOT NULL,
    thread VARCHAR(256) CHARACTER SET utf8mb4 NOT NULL,
    locked_at DATETIME(6) NOT NULL,
    -- Long ago if the lock is free.
    expires_at DATETIME(6) NOT NULL
) ENGINE = InnoDB;

-- Version 2 had no such column. (MySQL, as opposed to MariaDB, does not know 'if not exists' here.)
-- The claim that somebody asks for: of the one that holds, it means that it is to be released.
ALTER TABLE lockkeeper_rows
    ADD COLUMN /*M! IF NOT EXISTS */ asked CHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '';

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
-- Last, so that it says nothing before all of this is there.
INSERT INTO lockkeeper_schema VALUES ('row', 3) ON DUPLICATE KEY UPDATE version = VALUES(version);

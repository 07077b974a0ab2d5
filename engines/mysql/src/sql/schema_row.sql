-- The row style: the row is the lock. Whoever inserts it, or takes over one that has expired, holds.

CREATE TABLE IF NOT EXISTS lockkeeper_locks (
    name VARBINARY(640) NOT NULL PRIMARY KEY,
    -- The last token handed out, never less than the server's time in microseconds at that moment: so a row
    -- that was removed after long disuse begins again above where it ended (Law 8).
    last_place BIGINT NOT NULL
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS lockkeeper_rows (
    name VARBINARY(640) NOT NULL PRIMARY KEY,
    id CHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    token BIGINT NOT NULL,
    -- Who holds: free text, machine, process, thread.
    who VARCHAR(256) CHARACTER SET utf8mb4 NOT NULL,
    host VARCHAR(256) CHARACTER SET utf8mb4 NOT NULL,
    process BIGINT NOT NULL,
    thread VARCHAR(256) CHARACTER SET utf8mb4 NOT NULL,
    locked_at DATETIME(6) NOT NULL,
    expires_at DATETIME(6) NOT NULL
) ENGINE = InnoDB;

DELIMITER //

CREATE PROCEDURE lockkeeper_row_take(
    p_name VARBINARY(640), p_id CHAR(32) CHARACTER SET ascii, p_who VARCHAR(256) CHARACTER SET utf8mb4,
    p_host VARCHAR(256) CHARACTER SET utf8mb4, p_process BIGINT, p_thread VARCHAR(256) CHARACTER SET utf8mb4,
    p_ttl_us BIGINT
)
SQL SECURITY INVOKER
BEGIN
    DECLARE v_now BIGINT DEFAULT CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED);
    DECLARE v_token, v_left BIGINT DEFAULT NULL;
    DECLARE v_id CHAR(32) CHARACTER SET ascii DEFAULT NULL;
    DECLARE v_start DATETIME(6) DEFAULT SYSDATE(6);
    DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;

    -- A look without a lock first: most of those who find it busy go away without having written anything.
    SELECT id, token, TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), expires_at) INTO v_id, v_token, v_left
    FROM lockkeeper_rows WHERE name = p_name;
    IF v_left IS NULL OR v_left <= 0 THEN
        START TRANSACTION;
        -- Law 8: the token is taken from the lock's own counter, which stays locked until the row is committed.
        INSERT INTO lockkeeper_locks (name, last_place) VALUES (p_name, v_now)
        ON DUPLICATE KEY UPDATE last_place = GREATEST(last_place + 1, v_now);
        SELECT last_place INTO v_token FROM lockkeeper_locks WHERE name = p_name;
        SET v_start = SYSDATE(6);
        -- The last column decides, so it comes last.
        INSERT INTO lockkeeper_rows (name, id, token, who, host, process, thread, locked_at, expires_at)
        VALUES (p_name, p_id, v_token, p_who, p_host, p_process, p_thread, v_start,
            v_start + INTERVAL p_ttl_us MICROSECOND)
        ON DUPLICATE KEY UPDATE
            id = IF(expires_at <= v_start, VALUES(id), id),
            token = IF(expires_at <= v_start, VALUES(token), token),
            who = IF(expires_at <= v_start, VALUES(who), who),
            host = IF(expires_at <= v_start, VALUES(host), host),
            process = IF(expires_at <= v_start, VALUES(process), process),
            thread = IF(expires_at <= v_start, VALUES(thread), thread),
            locked_at = IF(expires_at <= v_start, VALUES(locked_at), locked_at),
            expires_at = IF(expires_at <= v_start, VALUES(expires_at), expires_at);
        SELECT id, token, TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), expires_at) INTO v_id, v_token, v_left
        FROM lockkeeper_rows WHERE name = p_name;
        COMMIT;
    END IF;
    -- Law 4: a second attempt finds its own hold.
    SELECT IF(v_id = p_id, v_token, NULL) AS token, v_left AS free_in_us;
END //

CREATE PROCEDURE lockkeeper_row_clean(p_idle_seconds BIGINT)
SQL SECURITY INVOKER
BEGIN
    DELETE FROM lockkeeper_rows WHERE expires_at < SYSDATE(6) - INTERVAL p_idle_seconds SECOND LIMIT 1000;
    DELETE FROM lockkeeper_locks
    WHERE last_place < CAST((UNIX_TIMESTAMP(SYSDATE(6)) - p_idle_seconds) * 1000000 AS SIGNED)
    AND NOT EXISTS (SELECT 1 FROM lockkeeper_rows WHERE lockkeeper_rows.name = lockkeeper_locks.name)
    LIMIT 1000;
END //

DELIMITER ;

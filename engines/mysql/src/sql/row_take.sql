-- Inserts rows, or takes over those that are free or have expired. For a single one the token comes back as the insert id,
-- and 0 if somebody has the lock: one statement, where a procedure would cost several times as much.
--
-- Law 8: on a row that is there the token is raised under its lock; a row that is not there has had no token for a day.
-- Assignments are made from left to right, and `expires_at` decides, so it comes last.
INSERT INTO lockkeeper_rows (name, id, token, who, host, process, thread, locked_at, expires_at)
VALUES {rows}
ON DUPLICATE KEY UPDATE
    token = IF(expires_at <= VALUES(locked_at),
        LAST_INSERT_ID(GREATEST(token + 1, VALUES(token))), token + LAST_INSERT_ID(0)),
    id = IF(expires_at <= VALUES(locked_at), VALUES(id), id),
    who = IF(expires_at <= VALUES(locked_at), VALUES(who), who),
    host = IF(expires_at <= VALUES(locked_at), VALUES(host), host),
    process = IF(expires_at <= VALUES(locked_at), VALUES(process), process),
    thread = IF(expires_at <= VALUES(locked_at), VALUES(thread), thread),
    locked_at = IF(expires_at <= VALUES(locked_at), VALUES(locked_at), locked_at),
    expires_at = IF(expires_at <= VALUES(locked_at), VALUES(expires_at), expires_at)

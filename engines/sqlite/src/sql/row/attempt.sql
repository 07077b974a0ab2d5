-- Takes the lock if there is no row, or if its owner's time is over; else changes nothing.
INSERT INTO lockkeeper_rows (lock, token, id, who, host, pid, thread, locked_at, expires_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
ON CONFLICT (lock) DO UPDATE SET
    token = excluded.token, id = excluded.id, who = excluded.who, host = excluded.host, pid = excluded.pid,
    thread = excluded.thread, locked_at = excluded.locked_at, expires_at = excluded.expires_at
WHERE lockkeeper_rows.expires_at <= excluded.locked_at;

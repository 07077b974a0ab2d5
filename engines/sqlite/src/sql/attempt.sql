-- Takes the lock if there is no row under its name; else changes nothing.
INSERT OR IGNORE INTO lockkeeper_rows (lock, token, id, who, host, pid, thread, locked_at, expires_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9);

-- Takes the lock: in a transaction that has seen that there is no row, or that its owner's time is over.
INSERT OR REPLACE INTO lockkeeper_rows (lock, token, id, who, host, pid, thread, locked_at, expires_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9);

UPDATE lockkeeper_locks SET expires_at = '2000-01-01'
WHERE name = ? AND id = ? AND NOT queued AND expires_at > '2000-01-01'

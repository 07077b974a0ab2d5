SELECT id, token, expires_at FROM lockkeeper_rows WHERE lock = ?1;

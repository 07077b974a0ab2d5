-- Every row from this name on; the reader stops where the prefix ends.
SELECT lock, token, id, who, host, pid, locked_at, expires_at FROM lockkeeper_rows WHERE lock >= ?1 ORDER BY lock;

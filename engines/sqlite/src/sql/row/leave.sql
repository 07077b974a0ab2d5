-- Only one's own row (Q7).
DELETE FROM lockkeeper_rows WHERE lock = ?1 AND id = ?2 RETURNING expires_at;

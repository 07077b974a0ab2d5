-- Only one's own row (Q7), and only if it is still alive.
DELETE FROM lockkeeper_rows WHERE lock = ?1 AND id = ?2 AND expires_at > ?3;

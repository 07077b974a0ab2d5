-- Only one's own row (Q7).
DELETE FROM lockkeeper_rows WHERE lock = ?1 AND id = ?2;

-- Law 2: an expired row is not found, so it is never revived.
UPDATE lockkeeper_rows SET expires_at = ?1 WHERE lock = ?2 AND id = ?3 AND expires_at > ?4;

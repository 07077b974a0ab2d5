UPDATE lockkeeper_claims SET expires_at = ?1 WHERE lock = ?2 AND place = ?3;

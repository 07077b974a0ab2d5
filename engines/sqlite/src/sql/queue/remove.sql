DELETE FROM lockkeeper_claims WHERE lock = ?1 AND place = ?2;

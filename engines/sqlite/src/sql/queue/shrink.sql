UPDATE lockkeeper_claims SET demand = ?1 WHERE lock = ?2 AND place = ?3;

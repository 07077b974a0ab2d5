-- Locks whose claims died and that nobody has asked for since.
SELECT DISTINCT lock FROM lockkeeper_claims WHERE expires_at <= ?1 LIMIT 1000;

-- The cleaner: rows of owners that died and that nobody has asked for since.
DELETE FROM lockkeeper_rows WHERE expires_at <= ?1;

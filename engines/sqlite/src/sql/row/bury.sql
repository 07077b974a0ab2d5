-- The row of an owner whose time is over, as the same transaction has seen.
DELETE FROM lockkeeper_rows WHERE lock = ?1;

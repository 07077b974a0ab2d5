-- The machine has booted since: every row is dead.
DELETE FROM lockkeeper_rows;

-- The machine has booted since: every claim is dead.
DELETE FROM lockkeeper_claims;

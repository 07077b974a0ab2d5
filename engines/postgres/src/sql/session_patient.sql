-- A connection that holds locks: what it waits for may take as long as it takes. It commits nothing that must outlive a
-- crash of the server, since its locks do not: of the tokens, each new connection skips what may have been handed out.
-- (Every 32nd token is written to the log; waiting for the disk there was half of the time of all pairs.)
SET statement_timeout = 0;
SET lock_timeout = 0;
SET synchronous_commit = off;

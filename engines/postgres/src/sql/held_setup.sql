-- A connection that holds locks: a statement may wait as long as it takes. It commits nothing that must outlive a crash of
-- the server, since its locks do not: of the tokens, each new connection skips what may have been given. (Every 32nd
-- token is written to the log; waiting for the disk there was half of the time of all pairs.)
SET statement_timeout = 0;
SET lock_timeout = 0;
SET synchronous_commit = off;
-- A client without a sign of life is given up when its trust in its locks has ended, and not before: one whose machine is
-- gone by TCP, one whose machine still replies by its idleness (a client probes its connections much more often). Servers
-- older than PostgreSQL 14 do not have all of these.
SET tcp_keepalives_idle = :keepalives_idle;
SET tcp_keepalives_interval = :keepalives_interval;
SET tcp_keepalives_count = :keepalives_count;
SELECT set_config(name, ':takeover_ms', false) FROM pg_settings WHERE name IN ('tcp_user_timeout', ':idle_timeout');

-- Each connection: only our own statements, which are short. A dead host is noticed within 10 s.
SET default_transaction_isolation = 'read committed';
SET default_transaction_read_only = off;
-- The plans are made once, maybe while the tables are empty; they must be right for full ones, too.
SET plan_cache_mode = force_generic_plan;
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SET jit = off;
SET tcp_keepalives_idle = 3;
SET tcp_keepalives_interval = 2;
SET tcp_keepalives_count = 3;
SET idle_in_transaction_session_timeout = 0;

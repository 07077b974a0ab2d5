-- Each transaction behind a transaction pooler, whose sessions belong to everybody: what is set ends with it. As in
-- connection_setup.sql; the isolation is what the functions rely on, whatever the default is.
BEGIN ISOLATION LEVEL READ COMMITTED;
SET LOCAL transaction_read_only = off;
SET LOCAL plan_cache_mode = force_generic_plan;
SET LOCAL enable_seqscan = off;
SET LOCAL enable_bitmapscan = off;
SET LOCAL jit = off;

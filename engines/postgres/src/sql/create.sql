-- One creator at a time: two that create the same table at once would fail, 'if not exists' or not.
SELECT pg_advisory_xact_lock(hashtextextended('lockkeeper schema', 0));

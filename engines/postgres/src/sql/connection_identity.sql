-- Which server process this connection has, and whether it may give locks at all.
SELECT pg_backend_pid() AS pid, version() AS version, pg_is_in_recovery() AS standby,
    (SELECT extract(epoch FROM backend_start) FROM pg_stat_activity WHERE pid = pg_backend_pid()) AS started,
    current_setting('transaction_read_only') = 'on' AS read_only

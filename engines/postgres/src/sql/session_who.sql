-- Which server process this connection has, and whether it may give locks at all.
SELECT pg_backend_pid() AS backend, pg_is_in_recovery() AS standby,
    current_setting('transaction_read_only') = 'on' AS read_only

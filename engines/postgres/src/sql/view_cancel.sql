-- Ends the statement that this process ($1 its number, $2 its start) is executing.
SELECT pg_cancel_backend(pid) FROM pg_stat_activity
WHERE pid = $1 AND extract(epoch FROM backend_start)::text = $2

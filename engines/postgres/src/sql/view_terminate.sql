-- Ends this process ($1 its number, $2 its start).
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE pid = $1 AND extract(epoch FROM backend_start)::text = $2

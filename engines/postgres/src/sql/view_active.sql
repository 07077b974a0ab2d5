-- Whether this process ($1 its number, $2 its start) is executing a statement.
SELECT FROM pg_stat_activity
WHERE pid = $1 AND extract(epoch FROM backend_start)::text = $2 AND state = 'active'

SELECT lockkeeper_advisory_wait($1) AS token, pg_backend_pid() AS backend

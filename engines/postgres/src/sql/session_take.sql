SELECT o_known, o_token, pg_backend_pid() AS backend FROM lockkeeper_session_take($1)

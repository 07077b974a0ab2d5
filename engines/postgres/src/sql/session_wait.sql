SELECT lockkeeper_session_wait($1) AS token

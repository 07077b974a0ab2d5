CALL lockkeeper_session_clean(86400)

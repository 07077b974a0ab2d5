CALL lockkeeper_session_free(?)

CALL lockkeeper_session_take(?, ?, ?, ?)

CALL lockkeeper_leave(?, ?)

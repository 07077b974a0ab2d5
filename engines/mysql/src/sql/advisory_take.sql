CALL lockkeeper_advisory_take(?, ?, ?, ?)

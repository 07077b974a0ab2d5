CALL lockkeeper_advisory_free(?)

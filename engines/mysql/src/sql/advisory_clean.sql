CALL lockkeeper_advisory_clean(86400)

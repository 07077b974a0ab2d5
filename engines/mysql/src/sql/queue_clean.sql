CALL lockkeeper_clean(86400)

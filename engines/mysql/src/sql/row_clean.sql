CALL lockkeeper_row_clean(86400)

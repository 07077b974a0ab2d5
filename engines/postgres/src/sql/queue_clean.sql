SELECT lockkeeper_clean(interval '1 day')

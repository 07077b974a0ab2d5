SELECT lockkeeper_session_clean(interval '1 day')

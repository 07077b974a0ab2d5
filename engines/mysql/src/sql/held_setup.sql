SET SESSION wait_timeout = 10 /*M!, use_stat_tables = 'never', session_track_system_variables = 'last_insert_id' */

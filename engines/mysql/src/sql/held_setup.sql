SET SESSION wait_timeout = 10 /*M!, use_stat_tables = 'never' */

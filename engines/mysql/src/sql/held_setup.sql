SET SESSION wait_timeout = {server}, net_read_timeout = {server}, net_write_timeout = {server},
    innodb_lock_wait_timeout = {wait} /*M!, use_stat_tables = 'never' */

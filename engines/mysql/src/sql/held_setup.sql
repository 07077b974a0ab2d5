SET SESSION wait_timeout = 10

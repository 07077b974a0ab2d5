SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED
SET time_zone = '+00:00', autocommit = 1, innodb_lock_wait_timeout = 1

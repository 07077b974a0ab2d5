-- MySQL and MariaDB, first in the transaction that reads or writes the resource; then compare.
INSERT INTO lockkeeper_fences (resource, token) VALUES (?, ?)
ON DUPLICATE KEY UPDATE token = GREATEST(token, VALUES(token));

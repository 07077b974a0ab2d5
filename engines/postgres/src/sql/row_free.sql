DELETE FROM lockkeeper_rows WHERE name = $1 AND id = $2 RETURNING name

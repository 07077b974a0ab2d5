DELETE FROM lockkeeper_rows WHERE name = ? AND id = ?

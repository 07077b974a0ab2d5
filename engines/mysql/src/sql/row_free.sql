UPDATE lockkeeper_rows SET id = '', expires_at = '2000-01-01' WHERE name = ? AND id = ?

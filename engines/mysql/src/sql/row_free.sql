UPDATE lockkeeper_rows SET expires_at = '2000-01-01' WHERE name = ? AND id = ? AND expires_at > '2000-01-01'

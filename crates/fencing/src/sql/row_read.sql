-- A fence column in the row itself, PostgreSQL and SQLite: the read raises the fence. No row: it is stale (or not there).
UPDATE stock SET fence = $2 WHERE id = $1 AND fence <= $2 RETURNING amount;

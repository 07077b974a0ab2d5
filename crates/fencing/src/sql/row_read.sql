-- A fence column in the row itself, PostgreSQL and SQLite: the read raises the fence. No row: it is stale (or not there).
-- Parameters: token, id. (Numbered in the order in which they first occur, for SQLite takes $2 for a name.)
UPDATE stock SET fence = $1 WHERE id = $2 AND fence <= $1 RETURNING amount;

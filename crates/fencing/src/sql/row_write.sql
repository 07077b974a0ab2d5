-- A fence column in the row itself: no row changed means that the token is stale (or the row not there).
UPDATE stock SET amount = $3, fence = $2 WHERE id = $1 AND fence <= $2;

-- A fence column in the row itself: no row changed means that the token is stale (or the row not there).
-- Parameters: amount, token, id.
UPDATE stock SET amount = $1, fence = $2 WHERE id = $3 AND fence <= $2;

-- The token, taken by one who has the lock; 0 if somebody else has it; 1 if the server could not say; 2 if this is not the
-- session that the connection began with (a pooling proxy), and then nothing is taken.
SELECT IF(CONNECTION_ID() = ?,
    CASE GET_LOCK(?, 0) WHEN 1 THEN NEXTVAL(lockkeeper_tokens) WHEN 0 THEN 0 ELSE 1 END, 2) AS token

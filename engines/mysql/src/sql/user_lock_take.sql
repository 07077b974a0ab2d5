-- Says in the answer itself (last_insert_id is tracked), since a result would cost the server several microseconds: the token,
-- taken by one who has the lock; 0 if somebody else has it; 1 if the server could not say; 2 if this is not the session that
-- it was, and then nothing is taken.
SET last_insert_id = IF(CONNECTION_ID() = {connection},
    CASE GET_LOCK(?, 0) WHEN 1 THEN NEXTVAL(lockkeeper_tokens) WHEN 0 THEN 0 ELSE 1 END, 2)

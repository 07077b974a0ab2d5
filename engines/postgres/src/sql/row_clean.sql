-- What expired long ago and was not taken over. Tokens do not depend on it: they come from the sequence. It takes rows in
-- any order and so waits for none of them, lest two wait for each other.
DELETE FROM lockkeeper_rows WHERE name IN (
    SELECT name FROM lockkeeper_rows WHERE expires_at < clock_timestamp() - interval '1 hour'
    FOR UPDATE SKIP LOCKED
)

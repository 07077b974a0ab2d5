-- What expired long ago and was not taken over. Tokens do not depend on it: they come from the sequence.
DELETE FROM lockkeeper_rows WHERE expires_at < clock_timestamp() - interval '1 hour'

-- One look for all who wait in a keeper: which of these locks are held.
SELECT name FROM lockkeeper_rows WHERE name = ANY ($1::text[]) AND expires_at > clock_timestamp()

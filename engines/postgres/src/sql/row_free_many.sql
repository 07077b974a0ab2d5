-- Frees many locks in one commit, and says which were held. A scan of the index by many names goes through them in their
-- order: so rows are locked in the order of names, here and in row_keep.sql, and two never wait for each other.
DELETE FROM lockkeeper_rows WHERE name = ANY ($1::text[]) AND id = ANY ($2::text[]) RETURNING id

-- Law 2: a hold that has expired is not renewed, even if nobody has taken it over yet. Rows are locked in the order of
-- their names, as in row_free_many.sql.
UPDATE lockkeeper_rows
SET expires_at = clock_timestamp() + ($3::bigint[])[array_position($2::text[], id)] * interval '1 millisecond'
WHERE name = ANY ($1::text[]) AND id = ANY ($2) AND expires_at > clock_timestamp()
RETURNING id, asked IS NOT DISTINCT FROM id AS asked

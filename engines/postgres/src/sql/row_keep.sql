-- Law 2: a hold that has expired is not renewed, even if nobody has taken it over yet.
UPDATE lockkeeper_rows AS lock
SET expires_at = clock_timestamp() + renewal.ttl_ms * interval '1 millisecond'
FROM unnest($1::text[], $2::text[], $3::bigint[]) AS renewal (name, id, ttl_ms)
WHERE lock.name = renewal.name AND lock.id = renewal.id AND lock.expires_at > clock_timestamp()
RETURNING lock.id

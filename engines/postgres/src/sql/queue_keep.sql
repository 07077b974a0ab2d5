-- Law 2: a claim that has expired is not renewed, even if nobody has removed it yet.
UPDATE lockkeeper_claims AS claim
SET expires_at = clock_timestamp() + renewal.ttl_ms * interval '1 millisecond'
FROM unnest($1::text[], $2::bigint[], $3::text[], $4::bigint[]) AS renewal (name, place, id, ttl_ms)
WHERE claim.name = renewal.name AND claim.place = renewal.place AND claim.id = renewal.id
AND claim.expires_at > clock_timestamp()
RETURNING claim.id

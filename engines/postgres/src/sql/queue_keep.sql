-- Law 2: a claim that has expired is not renewed, even if nobody has removed it yet. Rows are locked in the order of names
-- and places, as in lockkeeper_leave_many, so that no two statements wait for each other.
WITH renewed AS MATERIALIZED (
    SELECT claim.name, claim.place, renewal.ttl_ms, renewal.held_ms
    FROM unnest($1::text[], $2::bigint[], $3::text[], $4::bigint[], $5::bigint[]) AS renewal (name, place, id, ttl_ms, held_ms)
    JOIN lockkeeper_claims AS claim
        ON claim.name = renewal.name AND claim.place = renewal.place AND claim.id = renewal.id
    ORDER BY claim.name, claim.place
    FOR UPDATE OF claim
)
UPDATE lockkeeper_claims AS claim
SET expires_at = clock_timestamp() + renewed.ttl_ms * interval '1 millisecond',
    granted_at = coalesce(claim.granted_at, clock_timestamp() - renewed.held_ms * interval '1 millisecond')
FROM renewed
WHERE claim.name = renewed.name AND claim.place = renewed.place AND claim.expires_at > clock_timestamp()
RETURNING claim.id, claim.asked

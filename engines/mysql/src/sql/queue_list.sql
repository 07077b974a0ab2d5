-- The live claims of the first locks whose name begins with the prefix.
WITH wanted AS (
    SELECT name FROM lockkeeper_claims WHERE name >= ? AND LEFT(name, ?) = ? AND expires_at > SYSDATE(6)
    UNION
    SELECT name FROM lockkeeper_locks WHERE name >= ? AND LEFT(name, ?) = ? AND expires_at > SYSDATE(6)
    ORDER BY name LIMIT ?
)
SELECT claim.name, claim.id, claim.demand, claim.holder, claim.place,
    CAST(TIMESTAMPDIFF(MICROSECOND, claim.joined_at, SYSDATE(6)) AS SIGNED) AS age_us,
    CAST(TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), claim.expires_at) AS SIGNED) AS left_us
FROM wanted JOIN (
    SELECT name, id, demand, holder, place, joined_at, expires_at FROM lockkeeper_claims
    UNION ALL
    SELECT name, id, demand, holder, place, joined_at, expires_at FROM lockkeeper_locks
) AS claim ON claim.name = wanted.name
WHERE claim.expires_at > SYSDATE(6)
ORDER BY claim.name, claim.place

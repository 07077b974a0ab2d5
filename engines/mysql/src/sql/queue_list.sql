-- The live claims of the first locks whose name begins with the prefix.
SELECT claim.name, claim.id, claim.demand, claim.holder, claim.place,
    CAST(TIMESTAMPDIFF(MICROSECOND, claim.joined_at, SYSDATE(6)) AS SIGNED) AS age_us,
    CAST(TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), claim.expires_at) AS SIGNED) AS left_us,
    CAST(TIMESTAMPDIFF(MICROSECOND, claim.granted_at, SYSDATE(6)) AS SIGNED) AS held_us
FROM lockkeeper_claims AS claim
JOIN (
    SELECT DISTINCT name FROM lockkeeper_claims
    WHERE name >= ? AND LEFT(name, ?) = ? AND expires_at > SYSDATE(6) ORDER BY name LIMIT ?
) AS wanted ON wanted.name = claim.name
WHERE claim.expires_at > SYSDATE(6)
ORDER BY claim.name, claim.place

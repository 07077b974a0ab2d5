-- The live claims in the rows of locks whose name begins with the prefix.
SELECT name, id, demand, holder, place,
    CAST(TIMESTAMPDIFF(MICROSECOND, joined_at, SYSDATE(6)) AS SIGNED) AS age_us,
    CAST(TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), expires_at) AS SIGNED) AS left_us,
    CAST(TIMESTAMPDIFF(MICROSECOND, joined_at, SYSDATE(6)) AS SIGNED) AS held_us
FROM lockkeeper_locks
WHERE name >= ? AND LEFT(name, ?) = ? AND expires_at > SYSDATE(6)
ORDER BY name LIMIT ?

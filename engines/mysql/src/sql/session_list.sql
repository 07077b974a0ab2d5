-- Read uncommitted: the holders' transactions are open.
SELECT name, id, 'exclusive' AS demand, holder, token,
    CAST(TIMESTAMPDIFF(MICROSECOND, since, SYSDATE(6)) AS SIGNED) AS age_us, NULL AS left_us, NULL AS held_us
FROM lockkeeper_sessions
WHERE name >= ? AND LEFT(name, ?) = ? AND connection IS NOT NULL
ORDER BY name LIMIT ?

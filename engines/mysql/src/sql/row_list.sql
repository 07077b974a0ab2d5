SELECT name, id, who, host, process, token,
    CAST(TIMESTAMPDIFF(MICROSECOND, locked_at, SYSDATE(6)) AS SIGNED) AS age_us,
    CAST(TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), expires_at) AS SIGNED) AS left_us
FROM lockkeeper_rows
WHERE name >= ? AND LEFT(name, ?) = ? AND expires_at > SYSDATE(6)
ORDER BY name LIMIT ?

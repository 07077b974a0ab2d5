SELECT name, id, 'exclusive' AS demand, holder, token,
    CAST(TIMESTAMPDIFF(MICROSECOND, since, SYSDATE(6)) AS SIGNED) AS age_us, NULL AS left_us, NULL AS held_us
FROM lockkeeper_holds
WHERE name >= ? AND LEFT(name, ?) = ? AND IS_USED_LOCK(user_lock) = connection
ORDER BY name LIMIT ?

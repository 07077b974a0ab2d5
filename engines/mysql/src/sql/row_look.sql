-- Who has it, for one who did not get it: its own hold (Law 4: a second attempt finds it), or when it expires.
SELECT IF(id = ? AND expires_at > SYSDATE(6), token, NULL) AS token,
    CAST(TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), expires_at) AS SIGNED) AS free_in_us
FROM lockkeeper_rows WHERE name = ?

-- 0 if somebody else has it, NULL if the server could not say; the token is taken by one who has the lock.
SELECT CAST(ELT(1 + GET_LOCK({key}, 0), 0, NEXTVAL(lockkeeper_tokens)) AS UNSIGNED) AS token, CONNECTION_ID()

SELECT NEXTVAL(lockkeeper_tokens) AS token

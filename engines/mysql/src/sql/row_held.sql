SELECT name FROM lockkeeper_rows WHERE name IN ({names}) AND expires_at > SYSDATE(6)

SELECT id FROM lockkeeper_rows WHERE name IN ({names}) AND id IN ({ids}) AND expires_at > SYSDATE(6)

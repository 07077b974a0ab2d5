SELECT id, token FROM lockkeeper_rows FORCE INDEX (PRIMARY)
WHERE name IN ({names}) AND id IN ({ids}) AND expires_at > SYSDATE(6)

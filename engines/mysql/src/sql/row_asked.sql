SELECT id FROM lockkeeper_rows FORCE INDEX (PRIMARY)
WHERE name IN ({names}) AND id IN ({ids}) AND asked = id AND expires_at > SYSDATE(6)

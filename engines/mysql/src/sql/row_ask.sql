UPDATE lockkeeper_rows FORCE INDEX (PRIMARY) SET asked = id
WHERE name IN ({names}) AND id IN ({ids}) AND expires_at > SYSDATE(6);

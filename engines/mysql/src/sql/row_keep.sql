-- Law 2: a hold that has expired is not renewed, even if nobody has taken it over yet.
UPDATE lockkeeper_rows SET expires_at = SYSDATE(6) + INTERVAL {ttl_us} MICROSECOND
WHERE name IN ({names}) AND id IN ({ids}) AND expires_at > SYSDATE(6)

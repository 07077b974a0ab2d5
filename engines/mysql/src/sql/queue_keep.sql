-- Law 2: a claim that has expired is not renewed, even if nobody has removed it yet.
UPDATE lockkeeper_claims SET expires_at = SYSDATE(6) + INTERVAL {ttl_us} MICROSECOND
WHERE id IN ({ids}) AND expires_at > SYSDATE(6)

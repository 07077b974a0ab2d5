-- Law 2: a claim that has expired is not renewed, even if nobody has removed it yet.
UPDATE lockkeeper_claims SET expires_at = SYSDATE(6) + INTERVAL {ttl_us} MICROSECOND,
    granted_at = COALESCE(granted_at, SYSDATE(6) - INTERVAL CASE id {held_us} END MICROSECOND)
WHERE id IN ({ids}) AND expires_at > SYSDATE(6)

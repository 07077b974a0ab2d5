SELECT id FROM lockkeeper_claims WHERE id IN ({ids}) AND expires_at > SYSDATE(6)

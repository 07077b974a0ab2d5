-- The queue of one lock, in order.
SELECT place, id, demand, wake, expires_at FROM lockkeeper_claims WHERE lock = ?1 ORDER BY place;

-- Every claim from this name on, by lock and place; the reader stops where the prefix ends.
SELECT lock, place, id, demand, who, host, pid, joined_at, expires_at
FROM lockkeeper_claims WHERE lock >= ?1 ORDER BY lock, place;

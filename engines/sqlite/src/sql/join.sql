INSERT INTO lockkeeper_claims (lock, place, id, demand, who, host, pid, wake, joined_at, granted_at, expires_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11);

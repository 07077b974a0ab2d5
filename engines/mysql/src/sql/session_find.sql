SELECT connection FROM lockkeeper_sessions WHERE name = ? AND id = ? AND connection IS NOT NULL

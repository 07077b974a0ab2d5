INSERT INTO lockkeeper_sessions (name) VALUES ($1) ON CONFLICT (name) DO NOTHING

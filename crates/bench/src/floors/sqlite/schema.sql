-- The engine's own settings: a commit outlives a killed process, and waits for no disk.
PRAGMA synchronous = NORMAL;
PRAGMA wal_autocheckpoint = 4000;
CREATE TABLE floor (lock INTEGER PRIMARY KEY, holder TEXT NOT NULL) WITHOUT ROWID;

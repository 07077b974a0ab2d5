-- Where tokens come from: the microseconds since boot, which all processes read alike, plus a base that is chosen
-- once per boot so that they go on growing. So nothing is counted at a grant, and idle locks need no room (Law 8).
CREATE TABLE IF NOT EXISTS lockkeeper_counter (
    style   TEXT    NOT NULL PRIMARY KEY,
    horizon INTEGER NOT NULL, -- no token so far is larger; raised once a minute
    base    INTEGER NOT NULL, -- what is added to the microseconds since boot
    boot    TEXT    NOT NULL, -- which boot; the rows of another one are dead
    layout  INTEGER NOT NULL  -- the version of these tables
) WITHOUT ROWID;

INSERT OR IGNORE INTO lockkeeper_counter (style, horizon, base, boot, layout) VALUES ('row', 0, 0, '', 2);

-- A row per held lock: inserting it under its unique name is locking, deleting it is unlocking.
CREATE TABLE IF NOT EXISTS lockkeeper_rows (
    lock       TEXT    NOT NULL PRIMARY KEY,
    token      INTEGER NOT NULL,
    id         TEXT    NOT NULL, -- the claim that holds
    who        TEXT    NOT NULL,
    host       TEXT    NOT NULL,
    pid        INTEGER NOT NULL,
    thread     TEXT    NOT NULL,
    locked_at  INTEGER NOT NULL, -- nanoseconds since boot
    expires_at INTEGER NOT NULL, -- nanoseconds since boot
    asked      INTEGER NOT NULL DEFAULT 0 -- 1 if somebody asks for it to be released
) WITHOUT ROWID;

-- Where places and tokens come from: the microseconds since boot, which all processes read alike, plus a base that is chosen
-- once per boot so that they go on growing. So nothing is counted at a grant, and idle locks need no room (Law 8).
CREATE TABLE IF NOT EXISTS lockkeeper_counter (
    style   TEXT    NOT NULL PRIMARY KEY,
    horizon INTEGER NOT NULL, -- no token so far is larger; raised once a minute
    base    INTEGER NOT NULL, -- what is added to the microseconds since boot
    boot    TEXT    NOT NULL, -- which boot; the claims of another one are dead
    layout  INTEGER NOT NULL  -- the version of these tables
) WITHOUT ROWID;

INSERT OR IGNORE INTO lockkeeper_counter (style, horizon, base, boot, layout) VALUES ('queue', 0, 0, '', 3);

-- A row per claim, holding or waiting; a lock without claims has no row. There is no index by id, for it would cost
-- every join and leave one more page: a claim is found in its lock's queue. Processes of earlier
-- versions, which do not know the last columns, may be at work on the same tables.
CREATE TABLE IF NOT EXISTS lockkeeper_claims (
    lock       TEXT    NOT NULL,
    place      INTEGER NOT NULL,
    id         TEXT    NOT NULL,
    demand     TEXT    NOT NULL, -- exclusive, shared, or WANT/OF permits
    who        TEXT    NOT NULL,
    host       TEXT    NOT NULL,
    pid        INTEGER NOT NULL,
    wake       TEXT    NOT NULL, -- the end of the name of its keeper's FIFO
    joined_at  INTEGER NOT NULL, -- nanoseconds since boot
    expires_at INTEGER NOT NULL, -- nanoseconds since boot
    granted_at INTEGER,          -- nanoseconds since boot; null while it waits
    asked      INTEGER NOT NULL DEFAULT 0, -- 1 if somebody asks for it to be released
    PRIMARY KEY (lock, place)
) WITHOUT ROWID;

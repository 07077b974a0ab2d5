-- One counter per style: it outlives every lock (Law 8) and needs no room for idle ones. All writers of a
-- SQLite database take turns anyway, so one counter for all locks makes nobody wait longer.
CREATE TABLE IF NOT EXISTS lockkeeper_counter (
    style  TEXT    NOT NULL PRIMARY KEY,
    last   INTEGER NOT NULL, -- the last place, which is the token, too
    boot   TEXT    NOT NULL, -- the boot whose clock the expiries are measured on; another boot's claims are dead
    layout INTEGER NOT NULL  -- the version of these tables
) WITHOUT ROWID;

INSERT OR IGNORE INTO lockkeeper_counter (style, last, boot, layout) VALUES ('queue', 0, '', 1);

-- A row per claim, holding or waiting; a lock without claims has no row. There is no index by id, for it would cost
-- every join and leave one more page: a claim is found in its lock's queue.
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
    PRIMARY KEY (lock, place)
) WITHOUT ROWID;

-- One counter per style: it outlives every lock (Law 8) and needs no room for idle ones.
CREATE TABLE IF NOT EXISTS lockkeeper_counter (
    style  TEXT    NOT NULL PRIMARY KEY,
    last   INTEGER NOT NULL, -- the last token
    boot   TEXT    NOT NULL, -- the boot whose clock the expiries are measured on; another boot's rows are dead
    layout INTEGER NOT NULL  -- the version of these tables
) WITHOUT ROWID;

INSERT OR IGNORE INTO lockkeeper_counter (style, last, boot, layout) VALUES ('row', 0, '', 1);

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
    expires_at INTEGER NOT NULL  -- nanoseconds since boot
) WITHOUT ROWID;

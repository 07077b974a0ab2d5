-- The tables of the style 'row', version 1, as the first release made them.
CREATE TABLE IF NOT EXISTS lockkeeper_counter (
    style   TEXT    NOT NULL PRIMARY KEY,
    horizon INTEGER NOT NULL,
    base    INTEGER NOT NULL,
    boot    TEXT    NOT NULL,
    layout  INTEGER NOT NULL
) WITHOUT ROWID;
INSERT OR IGNORE INTO lockkeeper_counter (style, horizon, base, boot, layout) VALUES ('row', 0, 0, '', 1);
CREATE TABLE IF NOT EXISTS lockkeeper_rows (
    lock       TEXT    NOT NULL PRIMARY KEY,
    token      INTEGER NOT NULL,
    id         TEXT    NOT NULL,
    who        TEXT    NOT NULL,
    host       TEXT    NOT NULL,
    pid        INTEGER NOT NULL,
    thread     TEXT    NOT NULL,
    locked_at  INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) WITHOUT ROWID;

-- The row style: the row is the lock. The claim that inserts it, or takes over one that has expired, holds.

CREATE TABLE IF NOT EXISTS lockkeeper_rows (
    name text COLLATE "C" PRIMARY KEY,
    id text NOT NULL,
    token bigint NOT NULL,
    -- Who holds: free text, machine, process, thread.
    who text NOT NULL,
    host text NOT NULL,
    process bigint NOT NULL,
    thread text NOT NULL,
    locked_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    -- The claim that somebody asks for: of the one that holds, it means that it is to be released.
    asked text
) WITH (fillfactor = 70);

-- Version 2 had no such column.
ALTER TABLE lockkeeper_rows ADD COLUMN IF NOT EXISTS asked text;

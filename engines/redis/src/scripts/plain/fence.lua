-- How long the last token is remembered after the lock was last taken by the clock or renewed, in ms and beyond the hold's own TTL. The
-- server's clock must not be set back by more.
local FENCE_MS = 600000


-- The same for many locks: what follows is done for each, with keys and arguments of its own.
local function one(KEYS, ARGV)

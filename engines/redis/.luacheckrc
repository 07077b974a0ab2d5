-- The scripts run inside Redis: Lua 5.1, with these three names beside the standard ones.
std = "lua51"
read_globals = {"redis", "KEYS", "ARGV"}
max_line_length = 130

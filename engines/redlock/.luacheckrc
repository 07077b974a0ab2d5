-- The scripts run inside Redis: Lua 5.1, with these three names beside the standard ones.
std = "lua51"
read_globals = {"redis", "KEYS", "ARGV"}
max_line_length = 130
-- Every script follows the prelude, which has these names for it.
files["src/scripts/common.lua"] = {unused = false}
for _, name in ipairs({"ask", "claims", "evict", "keep", "list", "pass", "raise", "regain", "wait"}) do
  files["src/scripts/" .. name .. ".lua"] = {
    read_globals = {
      "lock", "fence", "waiting", "seconds", "now_ms", "use", "read", "hold_of", "live", "last_number", "number_of",
      "wake", "remove", "is_asked",
    },
  }
end

-- As cost.c, in Lua: cost.lua MODEL COUNT.
local evener = require("evener")

local runtime = evener.runtime({threads = 1, cache_dir = ""})
local session, count = runtime:session(arg[1]), tonumber(arg[2])
local inputs, outputs = {runtime:tensor("float32", {1}, {0})}, {runtime:tensor("float32", {1}, {0})}
for _ = 1, count / 5 do session:run_into(inputs, outputs) end
local begin = evener.now()
for _ = 1, count do session:run_into(inputs, outputs) end
print(string.format("%.1f", (evener.now() - begin) / count * 1e9))

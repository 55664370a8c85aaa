-- A million small calls, in flat memory; and what the safe layer costs beside the bare calls of ffi, which is printed and not judged.
local ffi = require("ffi")
local evener = require("evener")
local common = require("common")
local library = require("evener.library")

-- The kilobytes that the process has in memory.
local function resident()
  local file = io.open("/proc/self/statm")
  if not file then error(common.SKIP, 0) end
  local pages = tonumber(file:read("*l"):match("^%d+ (%d+)"))
  file:close()
  return pages * 4
end

common.test("a million small calls leave memory as it was", function()
  local rt = common.runtime({threads = 1})
  local session = common.session(rt, common.double())
  local x, y = common.vector(rt, 1, 2, 3), common.vector(rt, 0, 0, 0)
  local inputs, outputs = {x}, {y}
  local function calls(count)
    for index = 1, count do
      session:run_into(inputs, outputs)
      local view = y:view()
      if view[2] ~= 6 then error("a wrong sum") end
      view:close()
      if index % 10 == 0 then
        session:run(inputs, {outputs = outputs, timeout = 60})
        local made = session:run(inputs)
        made.y:close()
        session:run(inputs) -- and one that is left to the collector
        local request = session:submit(inputs)
        request:wait()
        request:take()
        request:close()
      end
    end
    for _ = 1, 3 do collectgarbage() end
  end
  calls(20000)
  local lua, process = collectgarbage("count"), resident()
  calls(180000) -- of six calls of C each, and nine more in every tenth
  local more_lua, more_process = collectgarbage("count") - lua, resident() - process
  assert(more_lua < 512, more_lua .. " KiB more of Lua's memory")
  assert(more_process < 16 * 1024, more_process .. " KiB more of the process's memory")
end)

common.test("the cost of a run into given outputs is printed", function()
  local rt = common.runtime({threads = 1})
  local session = common.session(rt, common.double())
  local x, y = common.vector(rt, 1), common.vector(rt, 0)
  local inputs, outputs = {x}, {y}
  local api, scratch = library.api, library.scratch
  local handle = session.owned.handle
  local ins, outs = ffi.new("evn_tensor[1]", {x.owned.handle}), ffi.new("evn_tensor[1]", {y.owned.handle})
  local COUNT = 20000
  local function bare()
    for _ = 1, COUNT do
      if api.session_run(handle, ins, 1, outs, 1, nil, scratch) ~= 0 then error("a run failed") end
    end
  end
  local function safe()
    for _ = 1, COUNT do session:run_into(inputs, outputs) end
  end
  local best = {math.huge, math.huge}
  for _ = 1, 7 do
    for index, body in ipairs({bare, safe}) do
      local begin = evener.now()
      body()
      best[index] = math.min(best[index], (evener.now() - begin) / COUNT * 1e9)
    end
  end
  print(string.format("a run of one node into given outputs: %.0f ns by the bare call, %.0f ns by Session:run_into", best[1], best[2]))
  common.equal(y:to_table(), {2})
end)

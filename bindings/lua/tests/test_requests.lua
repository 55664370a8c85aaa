-- Asynchronous runs: what must stay until they end, deadlines, tokens, closing.
local ffi = require("ffi")
local evener = require("evener")
local common = require("common")
local test, equal, raises, runtime, vector = common.test, common.equal, common.raises, common.runtime, common.vector

test("sixteen requests with deadlines", function()
  local rt = runtime()
  local session = common.session(rt, common.double())
  local requests = {}
  for number = 1, 16 do
    local x = rt:wrap(ffi.new("float[?]", 100, number), "float32", {100})
    requests[number] = session:submit({x = x}, {deadline = evener.now() + 600, priority = number % 3})
  end
  for number, request in ipairs(requests) do
    assert(request:wait() and request:done())
    local view = request:take().y:view()
    for index = 0, 99 do equal(view[index], 2 * number) end
    raises("EVN_ERROR_WRONG_STATE", request.take, request)
    request:close()
  end
  common.contains(session:statistics("json"):gsub(" ", ""), '"completed":16')
end)

test("requests write outputs in place", function()
  local rt = runtime()
  local session = common.session(rt, common.double())
  local y = vector(rt, 0, 0)
  local request = session:submit({vector(rt, 1, 2)}, {outputs = {y = y}})
  request:wait()
  assert(request:take()[1] == y)
  equal(y:to_table(), {2, 4})
end)

test("a deadline that has passed, a token, and an input that does not fit, end requests", function()
  local rt = runtime()
  local session = common.session(rt, common.double())
  local x, cancel = vector(rt, 1), evener.cancel()
  local function outcome(inputs, options)
    local request = session:submit(inputs, options)
    request:wait()
    return request:take()
  end
  raises("EVN_ERROR_TIMEOUT", outcome, {x}, {deadline = evener.now() - 1})
  cancel:cancel()
  raises("EVN_ERROR_CANCELLED", outcome, {x}, {cancel = cancel})
  raises("EVN_ERROR_INVALID_ARGUMENT", outcome, {rt:tensor("int64", {1})})
  raises("EVN_ERROR_INVALID_ARGUMENT", session.submit, session, {x, x})
  raises("EVN_ERROR_INVALID_ARGUMENT", session.submit, session, {x}, {fail_when_ful = true})
end)

-- A request that computes until it is cancelled.
local function endless(rt, options)
  local session = common.session(rt, common.endless())
  local array = ffi.new("float[?]", 4)
  return session:submit({rt:wrap(array, "float32", {4})}, options), session
end

test("a request that is under way is seen, timed and cancelled", function()
  local rt = runtime()
  local request = endless(rt)
  assert(not request:done() and not request:wait(0.001))
  raises("EVN_ERROR_BUSY", request.take, request)
  request:cancel()
  assert(request:wait())
  raises("EVN_ERROR_CANCELLED", request.take, request)
  local late = endless(rt, {timeout = 0.01})
  late:wait()
  raises("EVN_ERROR_TIMEOUT", late.take, late)
  local token = evener.cancel()
  local other = endless(rt, {cancel = token})
  raises("EVN_ERROR_WRONG_STATE", other.cancel, other)
  token:cancel()
  other:wait()
  raises("EVN_ERROR_CANCELLED", other.take, other)
end)

test("all is closed while a request is under way", function()
  local rt = runtime()
  local request, session = endless(rt)
  session:close()
  rt:close()
  assert(not request:done())
  request:close()
  request:close()
  for _ = 1, 5 do collectgarbage() end
  -- What it uses goes when it has ended.
  while evener.Request.under_way() > 0 do collectgarbage() end
end)

test("tensors stay while a request that nobody has is under way", function()
  local rt = runtime()
  local token, array = evener.cancel(), ffi.new("float[?]", 4)
  local is_there = setmetatable({array}, {__mode = "v"})
  do
    local session = common.session(rt, common.endless())
    session:submit({rt:wrap(array, "float32", {4})}, {cancel = token})
  end
  array = nil
  for _ = 1, 5 do collectgarbage() end
  assert(is_there[1], "the memory of a request has gone")
  equal(evener.Request.under_way(), 1)
  token:cancel()
  while evener.Request.under_way() > 0 do end
  for _ = 1, 5 do collectgarbage() end
  assert(not is_there[1], "the memory of a request that has ended stays")
end)

test("a session is finished", function()
  local rt = runtime()
  local request, session = endless(rt)
  equal(session:finish(0.001), false)
  raises("EVN_ERROR_INVALID_HANDLE", session.finish, session)
  request:close()
  local doubling = common.session(rt, common.double())
  local last = doubling:submit({vector(rt, 4)})
  equal(doubling:finish(), true)
  assert(last:done())
  equal(last:take().y:to_table(), {8})
end)

test("the end of a Lua state ends requests that are under way", function()
  local here = debug.getinfo(1, "S").source:match("^@(.*)/[^/]*$") or "."
  local script = os.tmpname()
  local file = assert(io.open(script, "w"))
  file:write(string.format([[
    package.path = %q .. "/../?.lua;" .. %q .. "/?.lua;" .. package.path
    local common = require("common")
    local rt = common.runtime()
    local session = common.session(rt, common.endless())
    for _ = 1, 3 do session:submit({rt:wrap(require("ffi").new("float[?]", 4), "float32", {4})}) end
    io.write("submitted")
  ]], here, here))
  file:close()
  local program = 0
  while arg[program - 1] do program = program - 1 end
  local pipe = assert(io.popen(arg[program] .. " " .. script .. " && echo ' and ended'"))
  local said = pipe:read("*a")
  pipe:close()
  os.remove(script)
  equal(said, "submitted and ended\n")
end)

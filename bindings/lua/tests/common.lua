-- What the tests use: a runner that counts, and tiny models as bytes of ONNX.
local ffi = require("ffi")
local evener = require("evener")

local common = {}
local passed, failed, skipped = 0, 0, 0

-- Runs a test: what it raises is its failure.
function common.test(name, body)
  local is_right, problem = xpcall(body, function(problem)
    return problem == common.SKIP and problem or debug.traceback(tostring(problem), 2)
  end)
  if is_right then
    passed = passed + 1
  elseif problem == common.SKIP then
    skipped = skipped + 1
    print("skipped: " .. name)
  else
    failed = failed + 1
    print("FAILED: " .. name .. "\n" .. problem)
  end
  collectgarbage()
end

function common.finish()
  print(string.format("%d passed, %d failed, %d skipped", passed, failed, skipped))
  os.exit(failed == 0 and passed > 0 and 0 or 1, true)
end

common.SKIP = setmetatable({}, {__tostring = function() return "skipped" end})

-- A file that a test needs, of the folder that a variable names. Without it the test is skipped, and fails with EVENER_REQUIRE=1.
function common.needed(variable, name)
  local folder = os.getenv(variable)
  local path = folder and folder .. "/" .. name
  local file = path and io.open(path, "rb")
  if file then
    file:close()
    return path
  end
  if os.getenv("EVENER_REQUIRE") then error(string.format("EVENER_REQUIRE is set, and %s names no folder with %s", variable, name)) end
  error(common.SKIP, 0)
end

function common.read(path)
  local file = assert(io.open(path, "rb"))
  local bytes = file:read("*a")
  file:close()
  return bytes
end

-- Values that are the same, those of tables too.
function common.equal(got, wanted, where)
  where = where or "value"
  if type(wanted) ~= "table" then
    if got ~= wanted then error(string.format("%s is %s, not %s", where, tostring(got), tostring(wanted)), 2) end
    return
  end
  if type(got) ~= "table" then error(where .. " is " .. tostring(got) .. ", no table", 2) end
  for key, value in pairs(wanted) do common.equal(got[key], value, where .. "." .. tostring(key)) end
  for key in pairs(got) do
    if wanted[key] == nil then error(where .. " has " .. tostring(key) .. " too", 2) end
  end
end

-- The error that a call raises, which must be one of this binding's with that status.
function common.raises(status, call, ...)
  local is_right, problem = pcall(call, ...)
  if is_right then error("nothing was raised, not " .. status, 2) end
  if getmetatable(problem) ~= evener.Error then error("no error of the binding: " .. tostring(problem), 2) end
  if problem.status ~= status then error("not " .. status .. ": " .. tostring(problem), 2) end
  return problem
end

function common.contains(text, ...)
  for _, part in ipairs({...}) do
    if not text:find(part, 1, true) then error(string.format("there is no %s in: %s", part, text:sub(1, 3000)), 2) end
  end
end

function common.runtime(options)
  options = options or {}
  options.threads = options.threads or 2
  options.cache_dir = options.cache_dir or ""
  return evener.runtime(options)
end

function common.session(runtime, bytes, options)
  local model = runtime:load_string(bytes)
  local session = runtime:session(model, options)
  model:close()
  return session
end

function common.vector(runtime, ...)
  return runtime:tensor("float32", {select("#", ...)}, {...})
end

-- Protocol Buffers, as far as ONNX needs them.
local function varint(value)
  value = ffi.cast("uint64_t", ffi.cast("int64_t", value))
  local bytes = {}
  while value >= 128 do
    bytes[#bytes + 1] = string.char(tonumber(value % 128) + 128)
    value = value / 128
  end
  return table.concat(bytes) .. string.char(tonumber(value))
end

local function number(field, value) return varint(field * 8) .. varint(value) end
local function bytes(field, value) return varint(field * 8 + 2) .. varint(#value) .. value end
local function all(field, values)
  local made = {}
  for index, value in ipairs(values) do made[index] = bytes(field, value) end
  return table.concat(made)
end
common.FLOAT, common.INT64, common.STRING, common.BOOL = 1, 7, 8, 9

-- A value's name and type; a dim is a number or a name.
function common.value(name, dtype, dims)
  local shape = {}
  for index, dim in ipairs(dims) do shape[index] = type(dim) == "number" and number(1, dim) or bytes(2, dim) end
  return bytes(1, name) .. bytes(2, bytes(1, number(1, dtype) .. bytes(2, all(1, shape))))
end

function common.node(op, inputs, outputs, attributes)
  return all(1, inputs) .. all(2, outputs) .. bytes(3, "the_" .. op) .. bytes(4, op) .. all(5, attributes or {})
end

function common.constant(name, dtype, dims, raw)
  local made = {}
  for index, dim in ipairs(dims) do made[index] = number(1, dim) end
  return table.concat(made) .. number(2, dtype) .. bytes(8, name) .. bytes(9, raw)
end

function common.graph(nodes, inputs, outputs, constants)
  return all(1, nodes) .. bytes(2, "tiny") .. all(5, constants or {}) .. all(11, inputs) .. all(12, outputs)
end

function common.graph_attribute(name, graph)
  return bytes(1, name) .. bytes(6, graph) .. number(20, 5)
end

function common.model(...)
  local note = bytes(1, "character") .. bytes(2, "abc")
  return number(1, 8) .. bytes(7, common.graph(...)) .. bytes(8, number(2, 17)) .. bytes(14, note)
end

local function raw(ctype, values)
  local array = ffi.new(ctype .. "[?]", #values, values)
  return ffi.string(array, ffi.sizeof(array))
end
common.raw = raw

-- y = x + x, of any length.
function common.double()
  return common.model({common.node("Add", {"x", "x"}, {"y"})}, {common.value("x", 1, {"n"})}, {common.value("y", 1, {"n"})})
end

-- y = x * k, where k is 2 unless it is given.
function common.scale()
  return common.model({common.node("Mul", {"x", "k"}, {"y"})}, {common.value("k", 1, {}), common.value("x", 1, {"n"})},
                      {common.value("y", 1, {"n"})}, {common.constant("k", 1, {}, raw("float", {2}))})
end

-- y = x w, with x of any number of rows of 64: a model that can be quantized.
function common.product()
  local weights = {}
  for index = 0, 64 * 64 - 1 do weights[index + 1] = (index * 37 % 101 - 50) / 50 end
  return common.model({common.node("MatMul", {"x", "w"}, {"y"})}, {common.value("x", 1, {"m", 64})}, {common.value("y", 1, {"m", 64})},
                      {common.constant("w", 1, {64, 64}, raw("float", weights))})
end

-- Model of y = 2 x whose w is in another file; `common.doubling` is the content of that file.
function common.external_product(location)
  local function entry(key, said) return bytes(13, bytes(1, key) .. bytes(2, said)) end
  local header = number(1, 64) .. number(1, 64) .. number(2, common.FLOAT) .. bytes(8, "w")
  local rows = {"m", 64}
  return common.model({common.node("MatMul", {"x", "w"}, {"y"})}, {common.value("x", 1, rows)}, {common.value("y", 1, rows)},
                      {header .. entry("location", location) .. number(14, 1)})
end

function common.doubling()
  local weights = {}
  for index = 0, 64 * 64 - 1 do weights[index + 1] = index % 65 == 0 and 2 or 0 end
  return raw("float", weights)
end

-- Logits of three classes: y = x w + b, of any rows of four columns.
function common.linear()
  local weights = {}
  for index = 0, 11 do weights[index + 1] = index % 5 / 4 - 0.5 end
  local nodes = {common.node("MatMul", {"x", "w"}, {"p"}), common.node("Add", {"p", "b"}, {"y"})}
  return common.model(nodes, {common.value("x", 1, {"m", 4})}, {common.value("y", 1, {"m", 3})},
                      {common.constant("w", 1, {4, 3}, raw("float", weights)), common.constant("b", 1, {3}, raw("float", {0, 0, 0}))})
end

-- s = [x, x], a sequence.
function common.sequence()
  local sequence = bytes(1, "s") .. bytes(2, bytes(4, bytes(1, bytes(1, number(1, 1) .. bytes(2, bytes(1, bytes(2, "n")))))))
  return common.model({common.node("SequenceConstruct", {"x", "x"}, {"s"})}, {common.value("x", 1, {"n"})}, {sequence})
end

-- total = sum + x and y = -total: a state of two numbers.
function common.running_sum()
  local nodes = {common.node("Add", {"x", "sum"}, {"total"}), common.node("Neg", {"total"}, {"y"})}
  return common.model(nodes, {common.value("x", 1, {2}), common.value("sum", 1, {2})}, {common.value("total", 1, {2}), common.value("y", 1, {2})})
end

-- y = an operator of the domain "mine" of x, with an attribute of each kind.
function common.custom_model(op)
  local floats = raw("float", {1.5, 2.5})
  local function attribute(name, kind, value) return bytes(1, name) .. value .. number(20, kind) end
  local attributes = {
    attribute("count", 2, number(3, 3)), attribute("scale", 1, varint(2 * 8 + 5) .. raw("float", {0.5})), attribute("label", 3, bytes(4, "a label")),
    attribute("axes", 7, number(8, 1) .. number(8, -2)), attribute("rates", 6, bytes(7, raw("float", {0.25, 4}))),
    attribute("words", 8, bytes(9, "one") .. bytes(9, "two")), attribute("table", 4, bytes(5, common.constant("t", 1, {2}, floats))),
  }
  local node = common.node(op, {"x"}, {"y"}, attributes) .. bytes(7, "mine")
  local graph = common.graph({node}, {common.value("x", 1, {"n"})}, {common.value("y", 1, {"n"})})
  return number(1, 8) .. bytes(7, graph) .. bytes(8, number(2, 17)) .. bytes(8, bytes(1, "mine") .. number(2, 1))
end

-- y = x + 1 + 1 + ..., so often that it ends when it is cancelled alone.
function common.endless()
  local body = common.graph({common.node("Add", {"a", "one"}, {"b"}), common.node("Identity", {"go"}, {"go_on"})},
    {common.value("i", 7, {}), common.value("go", 9, {}), common.value("a", 1, {"n"})},
    {common.value("go_on", 9, {}), common.value("b", 1, {"n"})}, {common.constant("one", 1, {}, raw("float", {1}))})
  local loop = common.node("Loop", {"many", "", "x"}, {"y"}, {common.graph_attribute("body", body)})
  return common.model({loop}, {common.value("x", 1, {"n"})}, {common.value("y", 1, {"n"})}, {common.constant("many", 7, {}, raw("int64_t", {2 ^ 52}))})
end

return common

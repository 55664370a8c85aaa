-- Configurations, placement, devices, memory and caps, models, statistics, quantization.
local evener = require("evener")
local common = require("common")
local test, equal, raises, runtime, vector = common.test, common.equal, common.raises, common.runtime, common.vector

local STRICT = [[
version: 1
placement:
  default: cpu
  rules:
    - {match: {op: MatMul}, device: cpu, numerics: strict}
]]

local function temporary(bytes)
  local path = os.tmpname()
  local file = assert(io.open(path, "wb"))
  file:write(bytes)
  file:close()
  return path
end

test("YAML places nodes, and explain says so", function()
  local rt = runtime({config = STRICT})
  local session = common.session(rt, common.product())
  common.contains(session:explain("json"):gsub(" ", ""), '"name":"the_MatMul"', '"device":"cpu"', '"rule_line":5', '"numerics":"strict"')
  common.contains(session:explain("svg"), "<svg")
  common.contains(session:explain("dot"), "digraph")
  common.contains(session:explain(), "MatMul")
  rt:reconfigure({config = "version: 1\n"})
  assert(not session:explain("json"):find("strict"))
  raises("EVN_ERROR_CONFIG", rt.reconfigure, rt, {config = "version: 9\n"})
  raises("EVN_ERROR_IO", rt.reconfigure, rt, {config_path = "/nowhere.yaml"})
  raises("EVN_ERROR_INVALID_ARGUMENT", session.explain, session, "pdf")
end)

test("a wrong configuration names the key", function()
  common.contains(raises("EVN_ERROR_CONFIG", runtime, {config = "version: 1\nplacemint: {}\n"}).message, "placement")
  common.contains(raises("EVN_ERROR_INVALID_ARGUMENT", runtime, {config = ""}).message, "config_size")
  raises("EVN_ERROR_IO", runtime, {config_path = "/nowhere.yaml"})
  common.contains(raises("EVN_ERROR_INVALID_ARGUMENT", runtime, {thread = 1}).message, "no option thread", "threads")
  raises("EVN_ERROR_INVALID_ARGUMENT", runtime, {threads = 1.5})
end)

test("a model that the configuration names", function()
  local model = temporary(common.double())
  local config = temporary("version: 1\nmodels:\n  twice: {path: " .. model:match("[^/]*$") .. "}\n")
  local rt = runtime({config_path = config})
  equal(rt:named_session("twice"):run({vector(rt, 2)}).y:to_table(), {4})
  raises("EVN_ERROR_INVALID_ARGUMENT", rt.named_session, rt, "thrice")
  common.contains(rt:inspect(model, {shapes = {x = {5}}}, "json"):gsub(" ", ""), '"loads":true')
  common.contains(rt:inspect(nil, {data = common.double()}), "Add")
  os.remove(model)
  os.remove(config)
end)

test("a session of a file takes allowed roots and map_files as its model does", function()
  local root = os.tmpname()
  os.remove(root)
  local store, models, file = root .. "/store", root .. "/models", root .. "/models/m.onnx"
  assert(os.execute(string.format("mkdir -p %s %s && ln -s ../store/w.evener-bin %s/w.bin", store, models, models)))
  for path, bytes in pairs({[store .. "/w.evener-bin"] = common.doubling(), [file] = common.external_product("w.bin")}) do
    local made = assert(io.open(path, "wb"))
    made:write(bytes)
    made:close()
  end
  local rt = runtime()
  local threes, sixes = {}, {}
  for index = 1, 64 do threes[index], sixes[index] = 3, 6 end
  local x = rt:tensor("float32", {1, 64}, threes)
  raises("EVN_ERROR_INVALID_MODEL", rt.session, rt, file)
  raises("EVN_ERROR_INVALID_MODEL", rt.session, rt, file, {allowed_roots = {models}})
  for _, mapped in ipairs({false, true}) do
    local session = rt:session(file, {allowed_roots = {store}, map_files = mapped, name = "linked"})
    equal(session:run({x})[1]:to_table(), sixes)
    equal(common.read("/proc/self/maps"):find("/w.evener-bin", 1, true) ~= nil, mapped)
    session:close()
  end
  local wrong = {allowed_roots = {store}, nonsense = 1}
  common.contains(raises("EVN_ERROR_INVALID_ARGUMENT", rt.session, rt, file, wrong).message, "nonsense")
  os.execute("rm -r " .. root)
end)

test("devices and their memory", function()
  local rt = runtime({memory_limit = 2 ^ 26})
  local cpu = rt:devices()[1]
  local info = cpu:info()
  equal({info.kind, info.name, info.state, cpu:condition()}, {"cpu", "cpu", "ready", ""})
  assert(info.compute_units == 2 and info.memory_bytes > 0 and #info.driver > 0 and info.features.unified_memory ~= nil)
  local before = cpu:memory_stats()
  equal(before.limit, 2 ^ 26)
  local tensor = cpu:tensor("uint8", {2 ^ 20})
  local stats = cpu:memory_stats()
  equal(stats.by_class.tensors - before.by_class.tensors, 2 ^ 20)
  assert(stats.peak >= stats.current and stats.current >= 2 ^ 20 and stats.trim)
  local refused = raises("EVN_ERROR_OUT_OF_MEMORY", cpu.tensor, cpu, "uint8", {2 ^ 27})
  assert(refused.bytes_requested >= 2 ^ 27 and refused.bytes_available < 2 ^ 26 and refused.device == "cpu", tostring(refused))
  common.contains(tostring(refused), "bytes asked")
  cpu:set_memory_limit(math.huge)
  equal(cpu:memory_stats().limit, math.huge)
  cpu:tensor("uint8", {2 ^ 27}):close()
  tensor:close()
  cpu:set_cache_policy(math.huge, "always")
  equal(cpu:memory_stats().trim, "always")
  equal(cpu:memory_stats().cached, 0)
  cpu:trim_memory()
  cpu:reset_memory_peak()
  equal(cpu:memory_stats().peak, cpu:memory_stats().current)
  raises("EVN_ERROR_INVALID_ARGUMENT", cpu.set_memory_limit, cpu, 1)
  raises("EVN_ERROR_INVALID_ARGUMENT", cpu.set_memory_limit, cpu, -1)
  raises("EVN_ERROR_INVALID_ARGUMENT", cpu.set_cache_policy, cpu, 0, "sometimes")
  raises("EVN_ERROR_DEVICE_UNAVAILABLE", rt.device, rt, "opencl:99")
  common.contains(rt:describe_devices(), "cpu")
end)

test("a model tells what it is", function()
  local rt = runtime()
  local model = rt:load_string(common.double())
  equal(model:inputs(), {{name = "x", type = "tensor(float32)", dtype = "float32", dims = {"n"}}})
  equal(model:outputs()[1].dims, {"n"})
  common.contains(model:describe(), "Add")
  equal(model:metadata_keys(), {"character"})
  equal(model:metadata("character"), "abc")
  equal(model:metadata("author"), nil)
  raises("EVN_ERROR_DEVICE_UNAVAILABLE", rt.session, rt, model, {device = "nonsense"})
  raises("EVN_ERROR_INVALID_ARGUMENT", rt.session, rt, model, {numerics = "loose"})
  raises("EVN_ERROR_INVALID_ARGUMENT", rt.session, rt, rt)
end)

test("statistics, memory and comparison of sessions", function()
  local rt = runtime()
  local first = common.session(rt, common.product())
  local second = common.session(rt, common.product(), {name = "exact", numerics = "strict", batching = {max_batch = 4, max_delay = 0.001}})
  local x = rt:tensor("float32", {2, 64}, require("ffi").new("float[128]", 0.5))
  common.contains(first:compare(second, {x}, "json"), "largest_error")
  common.contains(rt:statistics("json"), '"exact"')
  common.contains(rt:statistics("prometheus"), "evener_requests_total")
  assert(first:memory_stats().plan_count >= 1)
end)

local function rows(rt, seed)
  local data = {}
  for index = 0, 16 * 64 - 1 do data[index + 1] = ((index * 31 + seed * 7) % 17) / 17 - 0.5 end
  return rt:tensor("float32", {16, 64}, data)
end

test("a model is quantized", function()
  local rt = runtime()
  local quantizer = rt:quantizer(nil, {data = common.product(), mode = "static", calibration = "minmax"})
  raises("EVN_ERROR_WRONG_STATE", quantizer.finish, quantizer)
  for seed = 0, 2 do quantizer:add_batch({x = rows(rt, seed)}) end
  raises("EVN_ERROR_INVALID_ARGUMENT", quantizer.add_batch, quantizer, {rt:tensor("int32", {1})})
  raises("EVN_ERROR_INVALID_ARGUMENT", quantizer.add_batch, quantizer, {z = rows(rt, 0)})
  quantizer:guard({rows(rt, 5)}, {error = true})
  local model = quantizer:finish()
  quantizer:verify({rows(rt, 6)})
  common.contains(quantizer:report("json"):gsub(" ", ""), '"quantized_nodes":1')
  local path = os.tmpname()
  quantizer:save(path)
  local x = rows(rt, 9)
  local exact = common.session(rt, common.product()):run({x}).y:to_table()
  local rounded = rt:session(model):run({x}).y:to_table()
  equal(rt:session(path):run({x}).y:to_table(), rounded)
  os.remove(path)
  local errors, signal = 0, 0
  for index = 1, #exact do
    errors = errors + (exact[index] - rounded[index]) ^ 2
    signal = signal + exact[index] ^ 2
  end
  assert(errors > 0 and errors < signal / 100, errors / signal)
  quantizer:close()
  quantizer:close()
  raises("EVN_ERROR_INVALID_HANDLE", quantizer.report, quantizer)
  raises("EVN_ERROR_INVALID_ARGUMENT", rt.quantizer, rt, nil, {data = common.product(), mode = "ternary"})
  local cancel = evener.cancel()
  cancel:cancel()
  raises("EVN_ERROR_CANCELLED", function()
    rt:quantizer(nil, {data = common.product(), cancel = cancel}):add_batch({rows(rt, 0)})
  end)
end)

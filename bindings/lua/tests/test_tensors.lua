-- Tensors, views, strings, lifetimes.
local ffi = require("ffi")
local evener = require("evener")
local common = require("common")
local test, equal, raises, runtime, vector = common.test, common.equal, common.raises, common.runtime, common.vector

test("tensors are made of lists, strings of bytes and arrays", function()
  local rt = runtime()
  equal(rt:tensor("float32", {2, 2}, {1, 2, 3, 4}):to_table(), {1, 2, 3, 4})
  equal(rt:tensor("int32", {2}, common.raw("int32_t", {7, -8})):to_table(), {7, -8})
  equal(rt:tensor("uint8", {3}, ffi.new("uint8_t[3]", {1, 2, 255})):to_table(), {1, 2, 255})
  equal(rt:tensor("bool", {2}, {true, false}):to_table(), {1, 0})
  equal(rt:tensor("float64", {}):to_table(), {0})
  equal(rt:tensor("float32", {0, 3}):to_table(), {})
  equal(rt:tensor("int4", {3}, "\33\3"):bytes(), "\33\3")
  equal(rt:tensor("float32", {2}, {1, 2}):bytes(), common.raw("float", {1, 2}))
  local info = rt:tensor("int16", {2, 3}):info()
  equal(info, {dtype = "int16", dims = {2, 3}, rank = 2, count = 6, bytes = 12, device = "cpu", is_pinned = false, is_read_only = false})
end)

test("what does not fit a tensor is an error", function()
  local rt = runtime()
  for _, values in ipairs({{1}, {1, 2, 3}, "abc", ffi.new("double[2]"), ffi.new("float[3]"), {1, "x"}, true}) do
    raises("EVN_ERROR_INVALID_ARGUMENT", rt.tensor, rt, "float32", {2}, values)
  end
  for _, dims in ipairs({{-1}, {1.5}, {"x"}, {0 / 0}, 3, {1, 1, 1, 1, 1, 1, 1, 1, 1}}) do
    raises("EVN_ERROR_INVALID_ARGUMENT", rt.tensor, rt, "float32", dims)
  end
  common.contains(raises("EVN_ERROR_INVALID_ARGUMENT", rt.tensor, rt, "float", {1}).message, "float32")
  raises("EVN_ERROR_INVALID_ARGUMENT", rt.tensor, rt, "float32", {1}, nil, {pined = true})
  local huge = raises("EVN_ERROR_LIMIT", rt.tensor, rt, "float32", {2 ^ 50})
  assert(type(huge.bytes_requested) == "number" and tostring(huge):find("EVN_ERROR_LIMIT"))
end)

test("64-bit integers are numbers where these have them", function()
  local rt = runtime()
  local list = rt:tensor("int64", {3}, {5, -7, 9007199254740993LL}):to_table()
  equal(type(list[1]) .. type(list[2]) .. type(list[3]), "numbernumbercdata")
  assert(list[1] == 5 and list[2] == -7 and list[3] == 9007199254740993LL)
  local large = rt:tensor("uint64", {1}, {18446744073709551615ULL}):to_table()[1]
  assert(ffi.istype("uint64_t", large) and large == 18446744073709551615ULL)
end)

test("views see the memory, and every access is checked", function()
  local rt = runtime()
  local tensor = rt:tensor("float32", {4})
  local view = tensor:view("write")
  equal(#view, 4)
  view[2] = 5
  raises("EVN_ERROR_WRONG_STATE", tensor.view, tensor, "read")
  view:close()
  view:close()
  raises("EVN_ERROR_INVALID_HANDLE", function() return view[0] end)
  raises("EVN_ERROR_INVALID_HANDLE", function() view[0] = 1 end)
  raises("EVN_ERROR_INVALID_HANDLE", view.pointer, view)
  local reading = tensor:view()
  equal(reading[2], 5)
  equal(reading:pointer()[2], 5)
  for _, index in ipairs({-1, 4, 1e30, 0 / 0, 2 ^ 53}) do
    raises("EVN_ERROR_INVALID_ARGUMENT", function() return reading[index] end)
    raises("EVN_ERROR_INVALID_ARGUMENT", function() reading[index] = 1 end)
  end
  raises("EVN_ERROR_INVALID_ARGUMENT", function() return reading.nothing end)
  raises("EVN_ERROR_WRONG_STATE", function() reading[0] = 1 end)
  raises("EVN_ERROR_INVALID_ARGUMENT", tensor.view, tensor, "both")
end)

test("a view keeps what it shows", function()
  local rt = runtime()
  local tensor = rt:tensor("float32", {1024}, ffi.new("float[1024]", 7))
  local view = tensor:view()
  tensor:close()
  rt:close()
  tensor, rt = nil, nil
  for _ = 1, 5 do collectgarbage() end
  for index = 0, 1023 do equal(view[index], 7) end
end)

test("arrays of the host are wrapped without a copy, and stay", function()
  local rt = runtime()
  local array = ffi.new("float[?]", 4)
  local tensor = rt:wrap(array, "float32", {2, 2})
  array[3] = 9
  equal(tensor:to_table(), {0, 0, 0, 9})
  local part = tensor:part(2, {2})
  array, tensor = nil, nil
  for _ = 1, 5 do collectgarbage() end
  local others = {}
  for index = 1, 200 do others[index] = ffi.new("float[4]", index) end
  equal(part:to_table(), {0, 9})
  raises("EVN_ERROR_INVALID_ARGUMENT", rt.wrap, rt, ffi.new("double[4]"), "float32", {4})
  raises("EVN_ERROR_INVALID_ARGUMENT", rt.wrap, rt, ffi.new("float[4]"), "float32", {5})
  raises("EVN_ERROR_INVALID_ARGUMENT", rt.wrap, rt, ffi.new("float *[1]"), "float32", {2})
  raises("EVN_ERROR_INVALID_ARGUMENT", rt.wrap, rt, ffi.cast("float *", ffi.new("float[2]")), "float32", {2})
  raises("EVN_ERROR_INVALID_ARGUMENT", rt.wrap, rt, ffi.new("struct { float a[2]; }").a, "float32", {2})
  raises("EVN_ERROR_INVALID_ARGUMENT", rt.wrap, rt, {1, 2}, "float32", {2})
  raises("EVN_ERROR_INVALID_ARGUMENT", part.part, part, 1, {2})
end)

test("tensors of strings", function()
  local rt = runtime()
  local tensor = rt:tensor("string", {3}, {"a", "", "b\0c"})
  equal(tensor:strings(), {"a", "", "b\0c"})
  equal(tensor:to_table(), {"a", "", "b\0c"})
  equal(tensor:string(2), "b\0c")
  raises("EVN_ERROR_INVALID_ARGUMENT", tensor.string, tensor, 3)
  raises("EVN_ERROR_INVALID_ARGUMENT", tensor.view, tensor)
  raises("EVN_ERROR_INVALID_ARGUMENT", tensor.set, tensor, {"a"})
  raises("EVN_ERROR_INVALID_ARGUMENT", tensor.set, tensor, {"a", "b", 3})
end)

test("tensors lie on an OpenCL device", function()
  local rt = runtime()
  local is_there, device = pcall(rt.device, rt, "opencl:0")
  if not is_there then
    equal(device.status, "EVN_ERROR_DEVICE_UNAVAILABLE")
    error(common.SKIP, 0)
  end
  equal(device:info().kind, "opencl")
  local session = common.session(rt, common.double(), {device = "opencl:0"})
  local x = device:tensor("float32", {3}, {1, 2, 3}, {pinned = true})
  local y = session:run({x}, {outputs_on_device = true}).y
  equal(y:info().device, device:info().name)
  local view = y:view()
  x:close()
  y:close()
  equal({view[0], view[2], #view}, {2, 6, 3})
  view:close()
  local request = session:submit({vector(rt, 5)}, {timeout = 600})
  request:wait()
  equal(request:take().y:copy_to(device):to_table(), {10})
end)

test("copies", function()
  local rt = runtime()
  local from, to = common.vector(rt, 1, 2), common.vector(rt, 0, 0)
  from:copy_into(to)
  equal(to:to_table(), {1, 2})
  equal(from:copy_to(rt:device()):to_table(), {1, 2})
  raises("EVN_ERROR_INVALID_ARGUMENT", from.copy_into, from, common.vector(rt, 1))
end)

test("objects may be closed twice, and are not used behind that", function()
  local rt = runtime()
  local session = common.session(rt, common.double())
  local x = common.vector(rt, 1)
  local objects = {
    {rt, "devices", "tensor", "load", "load_string", "session", "named_session", "statistics", "describe_devices", "wrap", "quantizer",
     "reconfigure", "calibrate", "inspect", "device"},
    {rt:device(), "info", "memory_stats", "trim_memory", "reset_memory_peak", "set_memory_limit", "tensor", "condition"},
    {rt:load_string(common.double()), "inputs", "outputs", "describe", "metadata", "metadata_keys"},
    {session, "run", "run_into", "submit", "explain", "statistics", "inputs", "outputs", "find_input", "find_output", "memory_stats", "state",
     "trace_start", "trace_stop", "trace", "compare", "finish"},
    {x, "info", "view", "to_table", "set", "bytes", "part", "copy_into", "copy_to", "strings", "string"},
    {evener.cancel(), "cancel"},
    {session:submit({x}), "wait", "done", "take", "cancel"},
  }
  local arguments = {load = {"/x"}, load_string = {"x"}, session = {"x"}, named_session = {"x"}, set_memory_limit = {1e9}, set = {{1}}, wrap = {ffi.new("float[1]"), "float32", {1}},
                     part = {0, {1}}, copy_into = {x}, find_input = {"x"}, find_output = {"y"}, string = {0}, tensor = {"float32", {1}}, metadata = {"k"},
                     run = {{}}, run_into = {{}, {}}, submit = {{}}, state = {{}}, compare = {session, {}}}
  local device_of_its_own = runtime():device()
  arguments.copy_to = {device_of_its_own}
  for _, entry in ipairs(objects) do
    entry[1]:close()
    entry[1]:close()
    assert(entry[1]:is_closed() and tostring(entry[1]):find("closed"))
    for index = 2, #entry do
      local method = entry[index]
      local problem = raises("EVN_ERROR_INVALID_HANDLE", entry[1][method], entry[1], unpack(arguments[method] or {}))
      common.contains(problem.message, "closed")
    end
  end
  raises("EVN_ERROR_INVALID_ARGUMENT", evener.Tensor.info, session)
  raises("EVN_ERROR_INVALID_ARGUMENT", evener.Tensor.info, nil)
  raises("EVN_ERROR_INVALID_ARGUMENT", evener.Request.wait, x)
end)

test("the collector gives back what nobody closed", function()
  local rt = runtime()
  local cpu = rt:device()
  local before = cpu:memory_stats().by_class.tensors
  for _ = 1, 100 do rt:tensor("float32", {1000}):view() end
  for _ = 1, 3 do collectgarbage() end
  equal(cpu:memory_stats().by_class.tensors, before)
  -- What is large is given back without being asked for.
  cpu:set_memory_limit(1.5 * 2 ^ 30)
  for _ = 1, 64 do rt:tensor("uint8", {2 ^ 26}) end
end)

-- Custom operators: functions of Lua as the callbacks of evn_operator. They are called on no thread but the one that is inside of a call of
-- this binding (EVN_OPERATOR_CALLER_THREAD); models with such operators cannot be submitted.
local ffi = require("ffi")
local library = require("evener.library")
local dtypes = require("evener.dtypes")
local view = require("evener.view")
local api, check, scratch, constants, invalid = library.api, library.check, library.scratch, library.constants, library.invalid

local operator = {}
local UNKNOWN_RANK, VARIADIC = 2 ^ 32 - 1, 2 ^ 32 - 1

-- Nodes, as functions of operators see them, until these return.
local Node = {}
Node.__index = Node

local function handle_of(node)
  if node.handle == nil then library.fail("EVN_ERROR_INVALID_HANDLE", "the node is used behind the end of the function that got it") end
  return node.handle
end

-- As library.read, with memory of its own: the call that runs the operator may be writing into that one.
local function read(call)
  local size = ffi.new("size_t[1]")
  check(call(nil, 0, size))
  local buffer = ffi.new("char[?]", size[0])
  check(call(buffer, size[0], size))
  return ffi.string(buffer, size[0] - 1)
end

function Node.name(self)
  local handle = handle_of(self)
  return read(function(to, room, size) return api.operator_node_name(handle, to, room, size, scratch) end)
end

-- The dims of a view of C; -1: not known. nil: not even the rank is.
local function dims_of(seen)
  if seen.rank == UNKNOWN_RANK then return nil end
  local dims = {}
  for axis = 0, seen.rank - 1 do dims[axis + 1] = tonumber(seen.dims[axis]) end
  return dims
end

-- {dtype, dims}, and, where a view has memory, `values`: a view that ends with the callback. `open` collects those.
local function describe(seen, open, writable)
  if seen.dtype == constants.EVN_DTYPE_UNDEFINED then return nil end
  local made = {dtype = dtypes.name(seen.dtype), dims = dims_of(seen)}
  if seen.data ~= nil or (seen.size_bytes == 0 and writable ~= nil) then
    local count = 1
    for _, dim in ipairs(made.dims) do count = count * dim end
    made.values = view.borrow(seen.dtype, seen.data, count, tonumber(seen.size_bytes), writable or false)
    open[#open + 1] = made.values
  end
  return made
end

local function list(values, count, convert)
  local made = {}
  for index = 0, tonumber(count[0]) - 1 do made[index + 1] = convert(values[0][index]) end
  return made
end

local readers = {
  [constants.EVN_ATTRIBUTE_INT] = function(handle, name)
    local value = ffi.new("int64_t[1]")
    check(api.operator_attribute_int(handle, name, value, scratch))
    return library.number(value[0])
  end,
  [constants.EVN_ATTRIBUTE_FLOAT] = function(handle, name)
    local value = ffi.new("float[1]")
    check(api.operator_attribute_float(handle, name, value, scratch))
    return value[0]
  end,
  [constants.EVN_ATTRIBUTE_STRING] = function(handle, name)
    return read(function(to, room, size) return api.operator_attribute_string(handle, name, to, room, size, scratch) end)
  end,
  [constants.EVN_ATTRIBUTE_INTS] = function(handle, name)
    local values, count = ffi.new("const int64_t *[1]"), ffi.new("size_t[1]")
    check(api.operator_attribute_ints(handle, name, values, count, scratch))
    return list(values, count, library.number)
  end,
  [constants.EVN_ATTRIBUTE_FLOATS] = function(handle, name)
    local values, count = ffi.new("const float *[1]"), ffi.new("size_t[1]")
    check(api.operator_attribute_floats(handle, name, values, count, scratch))
    return list(values, count, tonumber)
  end,
  [constants.EVN_ATTRIBUTE_STRINGS] = function(handle, name)
    local count, made = ffi.new("uint32_t[1]"), {}
    check(api.operator_attribute_string_count(handle, name, count, scratch))
    for index = 0, count[0] - 1 do
      made[index + 1] = read(function(to, room, size) return api.operator_attribute_string_at(handle, name, index, to, room, size, scratch) end)
    end
    return made
  end,
  [constants.EVN_ATTRIBUTE_TENSOR] = function(handle, name, node)
    local seen = ffi.new("evn_tensor_view")
    check(api.operator_attribute_tensor(handle, name, seen, scratch))
    return describe(seen, node.open, false)
  end,
}

-- The value of an attribute: a number, a string, a list of these, or of a tensor {dtype, dims, values}. `default` where it is not given.
function Node.attribute(self, name, default)
  local handle, kind = handle_of(self), ffi.new("evn_attribute_type[1]")
  check(api.operator_attribute_type(handle, library.text(name, "the name of an attribute"), kind, scratch))
  if kind[0] == constants.EVN_ATTRIBUTE_NONE then return default end
  local reader = readers[kind[0]]
  if not reader then library.fail("EVN_ERROR_UNSUPPORTED", "attribute %s is of a kind that cannot be read", name) end
  return reader(handle, name, self)
end

-- Puts what `infer` says of an output into the struct of C.
local function declare(seen, answer, index)
  if type(answer) ~= "table" then invalid("infer gave a %s for output %d: {dtype =, dims =} is wanted", type(answer), index) end
  seen.dtype = dtypes.number(answer.dtype)
  if answer.dims == nil then
    seen.rank = UNKNOWN_RANK
    return
  end
  if type(answer.dims) ~= "table" or #answer.dims > constants.EVN_MAX_RANK then
    invalid("infer gave output %d dims that are no list of at most %d", index, constants.EVN_MAX_RANK)
  end
  seen.rank = #answer.dims
  for axis, dim in ipairs(answer.dims) do seen.dims[axis - 1] = library.whole(dim, "a dim", -1, 2 ^ 53) end
end

-- Status of an error, and its text of at most `size` bytes. A metamethod of the error may raise another one.
local function explain(raised, size)
  if getmetatable(raised) ~= library.Error then return constants.EVN_ERROR_INTERNAL, string.sub(tostring(raised), 1, size) end
  local is_failure = tostring(raised.status):find("^EVN_ERROR_")
  return is_failure and constants[raised.status] or constants.EVN_ERROR_INTERNAL, string.sub(raised.message, 1, size)
end

-- Runs the body of a callback: what it raises is the error of the call that came to it.
local function guarded(handle, problem, body)
  local node = setmetatable({handle = handle, open = {}}, Node)
  local is_right, raised = pcall(body, node)
  node.handle = nil
  for _, seen in ipairs(node.open) do view.end_borrowed(seen) end
  if is_right then return constants.EVN_OK end
  local is_explained, status, text = pcall(explain, raised, ffi.sizeof(problem.message) - 1)
  if not is_explained then status, text = constants.EVN_ERROR_INTERNAL, "a " .. type(raised) .. " was raised" end
  ffi.copy(problem.message, text)
  return status
end

-- The operators that there are, by the number that C hands on. The library may have them as long as there is a runtime, and tells of its end on
-- any thread: they stay.
local entries = {}

local function entry_of(user)
  return entries[tonumber(ffi.cast("intptr_t", user))]
end

local function on_infer(user, handle, inputs, input_count, outputs, output_count, problem)
  return guarded(handle, problem, function(node)
    local given = {}
    for index = 0, input_count - 1 do given[index + 1] = describe(inputs[index], node.open) or false end
    local answers = entry_of(user).infer(node, given, output_count)
    if type(answers) ~= "table" then invalid("infer gave a %s: a list of {dtype =, dims =} is wanted", type(answers)) end
    for index = 0, output_count - 1 do declare(outputs[index], answers[index + 1], index + 1) end
  end)
end

local function on_run(user, handle, inputs, input_count, outputs, output_count, problem)
  return guarded(handle, problem, function(node)
    local given, made = {}, {}
    for index = 0, input_count - 1 do given[index + 1] = describe(inputs[index], node.open, false) or false end
    for index = 0, output_count - 1 do made[index + 1] = describe(outputs[index], node.open, true) or false end
    entry_of(user).run(node, given, made)
  end)
end

local infer_callback, run_callback

-- A call that comes back into Lua must not be made from compiled code, which LuaJIT cannot know beforehand: from the first operator on the
-- functions that may run one are interpreted.
local function make_callbacks()
  if infer_callback then return end
  infer_callback, run_callback = ffi.cast("evn_operator_infer", on_infer), ffi.cast("evn_operator_run", on_run)
  for _, name in ipairs({"model", "quantizer", "runtime", "session", "state", "trainer"}) do
    for _, member in pairs(require("evener." .. name)) do -- functions, or classes
      for _, inner in pairs(type(member) == "table" and member or {member}) do
        if type(inner) == "function" then jit.off(inner, true) end
      end
    end
  end
  jit.off(library.read)
  jit.flush()
end

-- A count, or {least, most}; most nil: any number.
local function counts(value, what)
  if value == nil then return 1, 1 end
  if type(value) == "number" then value = {value, value} end
  if type(value) ~= "table" then invalid("%s: a number or {least, most} is wanted", what) end
  return library.whole(value[1] or 0, what, 0, 65536), value[2] and library.whole(value[2], what, 0, 65536) or VARIADIC
end

local KNOWN = {domain = true, name = true, since_version = true, inputs = true, outputs = true, value_inputs = true, infer = true, run = true}

function operator.register(runtime, values)
  if type(values) ~= "table" then invalid("an operator: a table is wanted, not a %s", type(values)) end
  for name in pairs(values) do
    if not KNOWN[name] then invalid("there is no option %s of an operator", tostring(name)) end
  end
  for _, name in ipairs({"infer", "run"}) do
    if type(values[name]) ~= "function" then invalid("%s of an operator is a %s: a function is wanted", name, type(values[name])) end
  end
  local op = ffi.new("evn_operator")
  api.operator_init(op, ffi.sizeof(op))
  local domain, name = library.text(values.domain, "the domain"), library.text(values.name, "the name")
  op.domain, op.name = domain, name
  op.since_version = library.whole(values.since_version or 1, "since_version", 1, 2 ^ 31 - 1)
  op.min_inputs, op.max_inputs = counts(values.inputs, "inputs")
  op.min_outputs, op.max_outputs = counts(values.outputs, "outputs")
  for _, index in ipairs(values.value_inputs or {}) do
    op.value_inputs = bit.bor(op.value_inputs, bit.lshift(1, library.whole(index, "an entry of value_inputs", 1, 32) - 1))
  end
  make_callbacks()
  op.flags = constants.EVN_OPERATOR_CALLER_THREAD
  op.infer, op.run = infer_callback, run_callback
  local number = #entries + 1
  op.user = ffi.cast("void *", ffi.cast("intptr_t", number))
  entries[number] = {infer = values.infer, run = values.run}
  local status = api.runtime_register_operator(runtime, op, scratch)
  if status ~= 0 then entries[number] = nil end
  check(status)
end

return operator

-- Runtimes: devices, memory, threads, and all that is made of them.
local ffi = require("ffi")
local library = require("evener.library")
local owned = require("evener.owned")
local options = require("evener.options")
local Device = require("evener.device")
local Tensor = require("evener.tensor")
local Value = require("evener.value")
local models = require("evener.model")
local Session = require("evener.session")
local Quantizer = require("evener.quantizer")
local Trainer = require("evener.trainer")
local operator = require("evener.operator")
local api, check, scratch, kinds = library.api, library.check, library.scratch, options.kinds

local Runtime = owned.class("runtime")
local handle_of, out = Runtime.handle, Runtime.out

-- The text of a configuration.
local function config_text(value, what, anchors, made)
  if type(value) ~= "string" then library.invalid("%s is a %s: a string is wanted", what, type(value)) end
  anchors[#anchors + 1] = value
  made.config_size = #value
  return value
end

local fill = options.filler("evn_runtime_options", api.runtime_options_init, {
  threads = {kinds.whole(0, 2 ^ 31 - 1), "thread_count"}, config_path = {kinds.text, "config_path"}, config = {config_text, "config_text"},
  cache_dir = {kinds.text, "cache_dir"}, memory_limit = {kinds.bytes, "cpu_memory_limit_bytes"},
  probe_program = {kinds.text, "probe_program"}, probe_timeout = {kinds.seconds, "probe_timeout_ns"},
})

local fill_reconfigure = options.filler("evn_reconfigure_options", api.reconfigure_options_init, {
  config_path = {kinds.text, "config_path"}, config = {config_text, "config_text"}, cancel = {kinds.object(models.Cancel), "cancel"},
  deadline = {kinds.deadline, "deadline_ns"},
})

local fill_calibrate = options.filler("evn_calibrate_options", api.calibrate_options_init, {
  cancel = {kinds.object(models.Cancel), "cancel"}, deadline = {kinds.deadline, "deadline_ns"},
})

-- options: config (YAML as a string) or config_path (a file of it), threads, cache_dir ("": none), memory_limit (bytes of the CPU device),
-- probe_program, probe_timeout (seconds)
function Runtime.new(values)
  local filled = fill(values, "options of a runtime")
  return Runtime.take(api.runtime_create(filled, out, scratch))
end

local give_back = Runtime.close

-- Ends this hold of the runtime. It goes with the last object that was made of it.
function Runtime.close(self)
  if self.cpu then self.cpu:close() end
  give_back(self)
end

local count = ffi.new("uint32_t[1]")

-- The list of devices that are open; the first is the CPU.
function Runtime.devices(self)
  local handle, list = handle_of(self), {}
  check(api.runtime_device_count(handle, count, scratch))
  for index = 0, count[0] - 1 do
    list[index + 1] = Device.take(api.runtime_device_at(handle, index, Device.out, scratch))
  end
  return list
end

-- A device by its name: "cpu" (also without one), "gpu", "opencl:0", or a name of the configuration.
function Runtime.device(self, name)
  return Device.take(api.runtime_device_find(handle_of(self), library.text(name or "cpu", "the name"), Device.out, scratch))
end

-- Every device that this machine offers, as "text" or "json".
function Runtime.describe_devices(self, format)
  local handle, number = handle_of(self), library.format(format)
  return library.read(function(to, room, size) return api.runtime_describe_devices(handle, number, to, room, size, scratch) end)
end

-- A tensor of the CPU over the memory of an array of cdata, without a copy.
function Runtime.wrap(self, array, dtype, dims)
  return Tensor.wrap(handle_of(self), array, dtype, dims)
end

-- A tensor on the CPU; see Tensor.create.
function Runtime.tensor(self, dtype, dims, values, tensor_options)
  handle_of(self)
  self.cpu = self.cpu or self:device("cpu")
  return self.cpu:tensor(dtype, dims, values, tensor_options)
end

-- A sequence, an optional or a map; see Value.create.
function Runtime.value(self, kind, parts)
  return Value.create(handle_of(self), kind, parts)
end

-- A model of a file, or of a string of its bytes.
function Runtime.load(self, path, values)
  return models.Model.load(handle_of(self), path, values)
end

function Runtime.load_string(self, bytes, values)
  return models.Model.from_string(handle_of(self), bytes, values)
end

-- What a model needs, also where it cannot be loaded; see Model.inspect.
function Runtime.inspect(self, path, values, format)
  return models.Model.inspect(handle_of(self), path, values, format)
end

-- A session of a model, or of the file at a path. See Session.new for options; a path takes allowed_roots and map_files of
-- Model.load as well.
function Runtime.session(self, model, values)
  local handle = handle_of(self)
  if type(model) ~= "string" then return Session.new(handle, model, values) end
  local of_model, of_session = nil, values
  if type(values) == "table" then
    of_model, of_session = {}, {}
    for _, name in ipairs({"allowed_roots", "map_files", "cancel", "deadline"}) do of_model[name] = values[name] end
    for name, value in pairs(values) do
      if name ~= "allowed_roots" and name ~= "map_files" then of_session[name] = value end
    end
  end
  local loaded = self:load(model, of_model)
  local is_made, session = pcall(Session.new, handle, loaded, of_session)
  loaded:close()
  if not is_made then error(session, 0) end
  return session
end

-- The session of a name that `models:` of the configuration has: one for all who ask.
function Runtime.named_session(self, name)
  return Session.named(handle_of(self), name)
end

-- Another configuration for this runtime and all its sessions. options: config or config_path, cancel, deadline
function Runtime.reconfigure(self, values)
  local handle, filled = handle_of(self), fill_reconfigure(values, "options of reconfigure")
  check(api.runtime_reconfigure(handle, filled, scratch))
end

-- Measures what steps and copies take on each device, for placement by `auto`. model is nullable.
function Runtime.calibrate(self, model, values, format)
  local handle, filled, number = handle_of(self), fill_calibrate(values, "options of calibrate"), library.format(format)
  local of = model and models.Model.handle(model) or nil
  return library.read(function(to, room, size) return api.runtime_calibrate(handle, of, filled, number, to, room, size, scratch) end)
end

-- What all sessions of the runtime have come to: "text", "json" or "prometheus".
function Runtime.statistics(self, format)
  local handle, number = handle_of(self), library.format(format)
  return library.read(function(to, room, size) return api.runtime_get_statistics(handle, number, to, room, size, scratch) end)
end

-- Adds an operator to those that models which are loaded from now on may use. operator: domain, name, since_version (1), inputs and outputs
-- (a count or {least, most}; 1), value_inputs (a list of inputs, 1 being the first, whose value decides on shapes), and two functions:
--   infer(node, inputs, output_count) gives a list of {dtype =, dims =}. inputs: {dtype, dims (-1: not known; nil: not even the rank),
--     values (of value_inputs, where it is known)}, false for one that is not given
--   run(node, inputs, outputs) computes: {dtype, dims, values}, whose values are views (as of tensors) until it returns; those of outputs
--     may be written
-- node: :name(), :attribute(name, default). What they raise is the error of the run. They must not use other objects of this binding. Both are
-- called on no other thread than that of the Lua state; models with such operators are run, not submitted.
function Runtime.register_operator(self, values)
  operator.register(handle_of(self), values)
end

-- A trainer of a file, or with path nil of options.data.
function Runtime.trainer(self, path, values)
  return Trainer.new(handle_of(self), path, values)
end

-- A quantizer of a file, or with path nil of options.data.
function Runtime.quantizer(self, path, values)
  return Quantizer.new(handle_of(self), path, values)
end

return Runtime

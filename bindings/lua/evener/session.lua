-- Sessions: models that are placed on devices, and their runs.
local ffi = require("ffi")
local library = require("evener.library")
local owned = require("evener.owned")
local options = require("evener.options")
local Tensor = require("evener.tensor")
local Value = require("evener.value")
local State = require("evener.state")
local Request = require("evener.request")
local models = require("evener.model")
local api, check, scratch, kinds, constants = library.api, library.check, library.scratch, options.kinds, library.constants
local Cancel, Model = models.Cancel, models.Model
local tensor_handle, value_handle = Tensor.handle, Value.handle

local Session = owned.class("session")
local handle_of, out = Session.handle, Session.out

local fill_batching = options.filler("evn_batching_options", api.batching_options_init, {
  max_batch = {kinds.whole(2, 65536), "max_batch"}, max_delay = {library.nanoseconds, "max_delay_ns"}, mask = {kinds.text, "mask"},
  buckets = {function(list, what, anchors)
    if type(list) ~= "table" then library.invalid("%s is a %s: a list of lengths is wanted", what, type(list)) end
    local made = ffi.new("int64_t[?]", math.max(#list, 1))
    for index, length in ipairs(list) do made[index - 1] = library.whole(length, what, 1, 2 ^ 53) end
    anchors[#anchors + 1] = made
    return made, #list
  end, "buckets", "bucket_count"},
})

local fill = options.filler("evn_session_options", api.session_options_init, {
  device = {kinds.text, "device"}, cache_file = {kinds.text, "cache_file"}, name = {kinds.text, "name"},
  cache_flags = {kinds.whole(0, 2 ^ 32 - 1), "cache_flags"},
  precision = {kinds.choice({default = 0, fp32 = 1, bf16 = 2, fp16 = 3, auto = 4}), "precision"},
  keep_fp32 = {kinds.texts, "keep_fp32", "keep_fp32_count"},
  numerics = {kinds.choice({default = 0, fast = 1, strict = 2}), "numerics"},
  disabled_passes = {kinds.texts, "disabled_passes", "disabled_pass_count"},
  concurrency = {kinds.whole(0, 2 ^ 31 - 1), "concurrency"}, cancel = {kinds.object(Cancel), "cancel"},
  deadline = {kinds.deadline, "deadline_ns"}, idle_arena_bytes = {kinds.bytes, "idle_arena_bytes"},
  arena_limit = {kinds.bytes, "arena_limit"},
  batching = {function(values, what) return fill_batching(values, what) end, "batching"},
  products = {kinds.choice({default = 0, own = 1, openblas = 2, clblast = 3, auto = 4, measured = 5}), "products"},
  memory = {kinds.choice({default = 0, fast = 1, small = 2}), "memory"},
  arenas = {kinds.choice({default = 0, own = 1, shared = 2}), "arenas"},
  overridable = {kinds.texts, "overridable", "overridable_count"},
})

local fill_run = options.filler("evn_run_options", api.run_options_init, {
  allow_copies = {kinds.flag, "allow_copies"}, timeout = {kinds.seconds, "timeout_ns"}, random_seed = {kinds.uint64, "random_seed"},
  cancel = {kinds.object(Cancel), "cancel"}, deadline = {kinds.deadline, "deadline_ns"},
  priority = {kinds.whole(constants.EVN_PRIORITY_LOWEST, constants.EVN_PRIORITY_HIGHEST), "priority"},
  outputs_on_device = {function(value, what) return kinds.flag(value, what) * constants.EVN_RUN_OUTPUTS_ON_DEVICE end, "flags"},
  state = {kinds.object(State), "state"}, skip = {function(skipped, _, anchors)
    anchors[#anchors + 1] = skipped
    return skipped
  end, "skipped_outputs"},
})

-- What a session knows of its model, once.
local function finish(session)
  local handle = session.owned.handle
  local inputs = Model.list(handle, api.session_input_count, api.session_get_input_info, api.session_input_name)
  local outputs = Model.list(handle, api.session_output_count, api.session_get_output_info, api.session_output_name)
  session.default_list = Model.list(handle, api.session_default_count, api.session_get_input_info, api.session_input_name, nil, #inputs)
  session.input_list, session.output_list = inputs, outputs
  session.input_count, session.output_count = #inputs, #outputs
  session.most_inputs = #inputs + #session.default_list
  session.names = {}
  for index, output in ipairs(outputs) do session.names[index] = output.name end
  session.input_slots = ffi.new("evn_tensor[?]", math.max(session.most_inputs, 1))
  session.output_slots = ffi.new("evn_tensor[?]", math.max(#outputs, 1))
  return session
end

-- options: device, precision, numerics, products, memory, arenas, keep_fp32, disabled_passes, concurrency, cache_file, cache_flags,
-- idle_arena_bytes, arena_limit, overridable, batching = {max_batch, max_delay, mask, buckets}, name, cancel, deadline
function Session.new(runtime, model, values)
  local filled = fill(values, "options of a session")
  return finish(Session.take(api.session_create(runtime, Model.handle(model), filled, out, scratch)))
end

-- The session of a model that the configuration names.
function Session.named(runtime, name)
  return finish(Session.take(api.runtime_session(runtime, library.text(name, "the name"), out, scratch)))
end

-- The lists of what the model takes and gives: {name, type, dtype, dims}; a dim that is open is -1 (Model:inputs() has its name).
function Session.inputs(self)
  handle_of(self)
  return self.input_list
end

-- Inputs that need not be given, since they have a default: they follow the others.
function Session.defaults(self)
  handle_of(self)
  return self.default_list
end

function Session.outputs(self)
  handle_of(self)
  return self.output_list
end

local index_out = ffi.new("uint32_t[1]")

-- The place of an input or output, 1 being the first. The error lists the names that there are.
function Session.find_input(self, name)
  check(api.session_find_input(handle_of(self), library.text(name, "the name"), index_out, scratch))
  return index_out[0] + 1
end

function Session.find_output(self, name)
  check(api.session_find_output(handle_of(self), library.text(name, "the name"), index_out, scratch))
  return index_out[0] + 1
end

-- The place of a name, or of a place.
local function place_of(self, key, total, find)
  local place = key
  if type(key) == "string" then place = find(self, key) end
  if type(place) ~= "number" or place % 1 ~= 0 or place < 1 or place > total then
    library.invalid("there is no input or output %s: the model has %d", tostring(key), total)
  end
  return place
end

-- Puts tensors by place or by name into an array of C. `list`, nullable, gets them by place.
local function gather(self, tensors, slots, total, find, list)
  if type(tensors) ~= "table" then library.invalid("a table of tensors is wanted, not a %s", type(tensors)) end
  for index = 0, total - 1 do slots[index] = nil end
  for key, tensor in pairs(tensors) do
    local place = place_of(self, key, total, find)
    if slots[place - 1] ~= nil then library.invalid("tensor %d is given by its place and by its name", place) end
    slots[place - 1] = tensor_handle(tensor)
    if list then list[place] = tensor end
  end
end

-- An input that is missing is named, but where a state gives it.
local function complete(self, slots, values)
  if values and values.state then return end
  for index = 0, self.input_count - 1 do
    if slots[index] == nil then library.invalid("input '%s' is missing", self.input_list[index + 1].name) end
  end
end

-- Runs the model on tensors, by place or by name, and gives the outputs by place and by name. options: timeout (seconds), deadline (of
-- evener.now()), priority, cancel, random_seed, state, allow_copies, outputs_on_device, skip (a list of outputs that are not wanted), and
-- outputs: tensors that are written in place.
function Session.run(self, inputs, values)
  local handle, given = handle_of(self), {}
  local ins, outs, names = self.input_slots, self.output_slots, self.names
  gather(self, inputs, ins, self.most_inputs, Session.find_input)
  local filled
  if values ~= nil then
    filled, values = self:run_options(values, outs, given)
    complete(self, ins, values)
  else
    for index = 0, self.output_count - 1 do outs[index] = nil end
    complete(self, ins)
  end
  check(api.session_run(handle, ins, self.most_inputs, outs, self.output_count, filled, scratch))
  local outputs = {}
  for index = 1, self.output_count do
    local tensor = given[index]
    if not tensor and outs[index - 1] ~= nil then tensor = Tensor.adopt(outs[index - 1]) end
    outputs[index] = tensor
    outputs[names[index]] = tensor
  end
  return outputs
end

-- The struct of run options; outputs that are among them go into the slots and the list.
function Session.run_options(self, values, slots, given)
  if type(values) ~= "table" then library.invalid("options of a run: a table is wanted, not a %s", type(values)) end
  local rest = {}
  for name, value in pairs(values) do
    if name ~= "outputs" then rest[name] = value end
  end
  if rest.skip ~= nil then
    local skipped = ffi.new("uint8_t[?]", math.max(self.output_count, 1))
    if type(rest.skip) ~= "table" then library.invalid("skip is a %s: a list of outputs is wanted", type(rest.skip)) end
    for _, key in ipairs(rest.skip) do skipped[place_of(self, key, self.output_count, Session.find_output) - 1] = 1 end
    rest.skip = skipped
  end
  gather(self, values.outputs or {}, slots, self.output_count, Session.find_output, given)
  return fill_run(rest, "options of a run"), rest
end

-- Runs the model into tensors that there are, by place: nothing is made. Inputs and outputs must not overlap.
function Session.run_into(self, inputs, outputs, values)
  local handle = handle_of(self)
  local ins, outs, output_count = self.input_slots, self.output_slots, self.output_count
  if type(inputs) ~= "table" or type(outputs) ~= "table" then library.invalid("lists of tensors are wanted") end
  local input_count = #inputs -- those with a default may be given, too
  if input_count < self.input_count or input_count > self.most_inputs then
    library.invalid("%d inputs: the model has %d", input_count, self.input_count)
  end
  if #outputs ~= output_count then library.invalid("%d outputs: the model has %d", #outputs, output_count) end
  for index = 1, input_count do ins[index - 1] = tensor_handle(inputs[index]) end
  for index = 1, output_count do outs[index - 1] = tensor_handle(outputs[index]) end
  local filled = nil
  if values ~= nil then
    if type(values) == "table" and values.skip ~= nil then library.invalid("run_into writes all outputs: skip is an option of run") end
    filled = fill_run(values, "options of a run")
  end
  check(api.session_run(handle, ins, input_count, outs, output_count, filled, scratch))
end

-- As run, of models that take or give more than tensors: inputs are values or tensors, outputs values. options: those of run but outputs.
function Session.run_values(self, inputs, values)
  local handle = handle_of(self)
  if type(inputs) ~= "table" then library.invalid("a table of values is wanted, not a %s", type(inputs)) end
  local ins, outs = ffi.new("evn_value[?]", math.max(self.most_inputs, 1)), ffi.new("evn_value[?]", math.max(self.output_count, 1))
  local given, outputs = {}, {}
  for key, value in pairs(inputs) do
    local place = place_of(self, key, self.most_inputs, Session.find_input)
    if given[place] then library.invalid("input %d is given by its place and by its name", place) end
    given[place] = Value.of(value)
    ins[place - 1] = value_handle(given[place])
  end
  complete(self, ins, values)
  if values and values.outputs then library.invalid("run_values makes its outputs") end
  local filled = self:run_options(values or {}, self.output_slots, {})
  check(api.session_run_values(handle, ins, self.most_inputs, outs, self.output_count, filled, scratch))
  for index = 1, self.output_count do
    local value = outs[index - 1] ~= nil and Value.adopt(outs[index - 1]) or nil
    if value then value.memory = given end -- what was given may be a part of it
    outputs[index], outputs[self.names[index]] = value, value
  end
  return outputs
end

-- As run, on threads of the library's: gives a Request at once. It keeps the tensors, whose bytes must stay as they are until it has ended.
-- options as of run, and fail_when_full: EVN_ERROR_BUSY where this would wait for room.
function Session.submit(self, inputs, values)
  local handle = handle_of(self)
  local ins, outs = ffi.new("evn_tensor[?]", math.max(self.most_inputs, 1)), ffi.new("evn_tensor[?]", math.max(self.output_count, 1))
  local uses, given, rest = {}, {}, {}
  local submit = ffi.new("evn_submit_options")
  api.submit_options_init(submit, ffi.sizeof(submit))
  for name, value in pairs(values or {}) do
    if name ~= "fail_when_full" then rest[name] = value
    else submit.flags = kinds.flag(value, name) * constants.EVN_SUBMIT_FAIL_WHEN_FULL end
  end
  gather(self, inputs, ins, self.most_inputs, Session.find_input, uses)
  complete(self, ins, rest)
  local filled = self:run_options(rest, outs, given)
  -- The request has a token of its own, so that it can be cancelled alone; one that was given is the caller's.
  local cancel = nil
  if not rest.cancel then
    check(api.cancel_create(Cancel.out, scratch))
    cancel = Cancel.out[0]
    filled.cancel = cancel
  end
  return Request.submit(function(request)
    return api.session_submit(handle, ins, self.most_inputs, outs, self.output_count, filled, submit, request, scratch)
  end, {inputs = uses, outputs = given, state = rest.state}, cancel, given, self.names)
end

-- Closes it, and waits until all its requests have ended. false: the time was over, and they go on.
function Session.finish(self, timeout)
  local status = api.session_finish(handle_of(self), library.nanoseconds(timeout, "the timeout"), scratch)
  if status == 0 or status == constants.EVN_ERROR_TIMEOUT then self.owned.handle = nil end
  return library.unless(status, constants.EVN_ERROR_TIMEOUT)
end

-- A state of this session: State.new.
function Session.state(self, list, values)
  return State.new(handle_of(self), list, values)
end

-- What the session holds, in bytes, by the names of evn_session_memory_stats.
function Session.memory_stats(self)
  local stats = ffi.new("evn_session_memory_stats")
  api.session_memory_stats_init(stats, ffi.sizeof(stats))
  check(api.session_get_memory_stats(handle_of(self), stats, scratch))
  local made = {}
  for _, name in ipairs({"arena_bytes", "idle_arena_bytes", "peak_arena_bytes", "arena_count", "arenas_made", "arenas_reused",
                         "arenas_dropped", "plan_count", "plan_bytes", "state_bytes"}) do
    made[name] = library.number(stats[name])
  end
  return made
end

-- Where each node runs, and why: "text", "json", "dot" or "svg".
function Session.explain(self, format)
  local handle, number = handle_of(self), library.format(format)
  return library.read(function(to, room, size) return api.session_explain(handle, number, to, room, size, scratch) end)
end

function Session.statistics(self, format)
  local handle, number = handle_of(self), library.format(format)
  return library.read(function(to, room, size) return api.session_get_statistics(handle, number, to, room, size, scratch) end)
end

-- Runs this and another session over the same inputs, and says how far outputs and times are apart.
function Session.compare(self, other, inputs, format)
  local handle, got, number = handle_of(self), handle_of(other), library.format(format)
  gather(self, inputs, self.input_slots, self.most_inputs, Session.find_input)
  return library.read(function(to, room, size)
    return api.session_compare(handle, got, self.input_slots, self.most_inputs, number, to, room, size, scratch)
  end)
end

-- Records what runs do: room for so many events. trace gives what was recorded, as "json" for the viewers of Chrome and Perfetto, or "text".
function Session.trace_start(self, events)
  check(api.session_trace_start(handle_of(self), library.whole(events or 100000, "events", 1, 2 ^ 32 - 1), scratch))
end

function Session.trace_stop(self)
  check(api.session_trace_stop(handle_of(self), scratch))
end

function Session.trace(self, format)
  local handle, number = handle_of(self), library.format(format or "json")
  return library.read(function(to, room, size) return api.session_get_trace(handle, number, to, room, size, scratch) end)
end

return Session

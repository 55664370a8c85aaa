-- Models, their inputs and outputs, and tokens that end work.
local ffi = require("ffi")
local library = require("evener.library")
local owned = require("evener.owned")
local options = require("evener.options")
local dtypes = require("evener.dtypes")
local api, check, scratch, kinds = library.api, library.check, library.scratch, options.kinds

local Cancel = owned.class("cancel")

-- A token by which runs and other work that it is given to can be asked to stop.
function Cancel.new()
  return Cancel.take(api.cancel_create(Cancel.out, scratch))
end

-- Asks all work that has the token to stop, and all that will be given it.
function Cancel.cancel(self)
  check(api.cancel_request(Cancel.handle(self)), "the token cannot be requested")
end

local Model = owned.class("model")
local handle_of, out = Model.handle, Model.out

local fill = options.filler("evn_model_options", api.model_options_init, {
  external_dir = {kinds.text, "external_dir"}, cancel = {kinds.object(Cancel), "cancel"}, deadline = {kinds.deadline, "deadline_ns"},
  allowed_roots = {kinds.texts, "allowed_roots", "allowed_root_count"},
  map_files = {function(value, what) return kinds.flag(value, what) * library.constants.EVN_MODEL_MAP end, "flags"},
})

-- Reads a file. options = {allowed_roots, map_files, cancel, deadline}
function Model.load(runtime, path, values)
  local filled = fill(values, "options of a model")
  return Model.take(api.model_load_file(runtime, library.text(path, "the path"), filled, out, scratch))
end

-- Reads the bytes of a string. options = {external_dir, allowed_roots, map_files, cancel, deadline}
function Model.from_string(runtime, bytes, values)
  if type(bytes) ~= "string" then library.invalid("a string of the model's bytes is wanted, not a %s", type(bytes)) end
  local filled = fill(values, "options of a model")
  return Model.take(api.model_load_buffer(runtime, bytes, #bytes, filled, out, scratch))
end

local info = ffi.new("evn_value_info")
local count = ffi.new("uint32_t[1]")

-- The list of inputs or outputs: {name, type, dtype, dims}. A dim that is open is the model's name of it, or -1; dims is nil where they are not
-- known. The functions are those of a model or of a session. `first`: the index of the first, 0 where it is nil.
function Model.list(handle, get_count, get_info, get_name, get_symbol, first)
  check(get_count(handle, count, scratch))
  local list = {}
  first = first or 0
  for index = first, first + count[0] - 1 do
    api.value_info_init(info, ffi.sizeof(info))
    check(get_info(handle, index, info, scratch))
    local made = {type = ffi.string(info.type), dtype = dtypes.name(info.dtype)}
    if info.rank <= library.constants.EVN_MAX_RANK then
      made.dims = {}
      for axis = 0, info.rank - 1 do
        local dim = library.number(info.dims[axis])
        local symbol = dim == -1 and get_symbol and get_symbol(handle, index, axis) or ""
        made.dims[axis + 1] = symbol ~= "" and symbol or dim
      end
    end
    made.name = library.read(function(to, room, size) return get_name(handle, index, to, room, size, scratch) end)
    list[#list + 1] = made
  end
  return list
end

local function input_symbol(handle, index, axis)
  return library.read(function(to, room, size) return api.model_input_symbol(handle, index, axis, to, room, size, scratch) end)
end

local function output_symbol(handle, index, axis)
  return library.read(function(to, room, size) return api.model_output_symbol(handle, index, axis, to, room, size, scratch) end)
end

function Model.inputs(self)
  return Model.list(handle_of(self), api.model_input_count, api.model_get_input_info, api.model_input_name, input_symbol)
end

-- Inputs that need not be given, since they have a default.
function Model.defaults(self)
  local handle = handle_of(self)
  return Model.list(handle, api.model_default_count, api.model_get_input_info, api.model_input_name, input_symbol, #self:inputs())
end

function Model.outputs(self)
  return Model.list(handle_of(self), api.model_output_count, api.model_get_output_info, api.model_output_name, output_symbol)
end

function Model.describe(self, format)
  local handle, number = handle_of(self), library.format(format)
  return library.read(function(to, room, size) return api.model_describe(handle, number, to, room, size, scratch) end)
end

-- The keys of the model's metadata, in the order of the file.
function Model.metadata_keys(self)
  local handle = handle_of(self)
  check(api.model_metadata_count(handle, count, scratch))
  local keys = {}
  for index = 0, count[0] - 1 do
    keys[index + 1] = library.read(function(to, room, size) return api.model_metadata_key(handle, index, to, room, size, scratch) end)
  end
  return keys
end

-- The value of a key of the metadata; nil where there is none.
function Model.metadata(self, key)
  local handle = handle_of(self)
  library.text(key, "the key")
  for _, known in ipairs(self:metadata_keys()) do
    if known == key then
      return library.read(function(to, room, size) return api.model_get_metadata(handle, key, to, room, size, scratch) end)
    end
  end
  return nil
end

-- A list of {name = dims} as an array of evn_input_shape.
function kinds.shapes(values, what, anchors)
  if type(values) ~= "table" then library.invalid("%s is a %s: a table of names and dims is wanted", what, type(values)) end
  local number = 0
  for _ in pairs(values) do number = number + 1 end
  local made = ffi.new("evn_input_shape[?]", math.max(number, 1))
  local at = 0
  for name, list in pairs(values) do
    local dims = ffi.new("int64_t[?]", math.max(#list, 1))
    for index, dim in ipairs(list) do dims[index - 1] = library.whole(dim, what, 0, 2 ^ 53) end
    anchors[#anchors + 1] = dims
    made[at].name, made[at].dims, made[at].rank = kinds.text(name, what, anchors), dims, #list
    at = at + 1
  end
  anchors[#anchors + 1] = made
  return made, number
end

-- The bytes of a model in a struct that has `data` and `size`.
function kinds.model_bytes(value, what, anchors, made)
  if type(value) ~= "string" then library.invalid("%s is a %s: a string is wanted", what, type(value)) end
  anchors[#anchors + 1] = value
  made.size = #value
  return ffi.cast("const void *", value)
end

local fill_inspect = options.filler("evn_inspect_options", api.inspect_options_init, {
  shapes = {kinds.shapes, "shapes", "shape_count"}, data = {kinds.model_bytes, "data"}, external_dir = {kinds.text, "external_dir"},
})

-- What a model needs, also where it cannot be loaded: of a file, or with path nil of options.data. options = {shapes, data, external_dir}
function Model.inspect(runtime, path, values, format)
  local filled, number = fill_inspect(values, "options of inspect"), library.format(format)
  if path ~= nil then library.text(path, "the path") end
  return library.read(function(to, room, size) return api.model_inspect(runtime, path, filled, number, to, room, size, scratch) end)
end

return {Model = Model, Cancel = Cancel}

-- Tensors, and views of their memory.
local ffi = require("ffi")
local library = require("evener.library")
local owned = require("evener.owned")
local view = require("evener.view")
local dtypes = require("evener.dtypes")
local api, check, scratch, invalid = library.api, library.check, library.scratch, library.invalid

local Tensor = owned.class("tensor")
local handle_of, out = Tensor.handle, Tensor.out

local info = ffi.new("evn_tensor_info")
local function fill_info(handle)
  api.tensor_info_init(info, ffi.sizeof(info))
  check(api.tensor_get_info(handle, info, scratch))
  return info
end

-- The dims of a list as C has them, their number, and how many elements they are.
local function dims_of(list)
  if type(list) ~= "table" then invalid("dims are a %s: a list of numbers is wanted", type(list)) end
  local rank = #list
  if rank > library.constants.EVN_MAX_RANK then
    invalid("%d dims: a tensor has %d at most", rank, library.constants.EVN_MAX_RANK)
  end
  local dims, count = ffi.new("int64_t[?]", math.max(rank, 1)), 1
  for index = 1, rank do
    dims[index - 1] = library.whole(list[index], "dim " .. index, 0, 2 ^ 53)
    count = count * tonumber(list[index])
  end
  return dims, rank, count
end

-- Tensors hold memory that the collector does not see: it is asked to look for those that nobody has each time that so much was made.
local PRESSURE, made_bytes = 256 * 2 ^ 20, 0
function Tensor.press(bytes)
  made_bytes = made_bytes + bytes
  if made_bytes > PRESSURE then
    made_bytes = 0
    collectgarbage()
  end
end

-- The tensor of a handle that a call gave.
function Tensor.adopt(handle)
  out[0] = handle
  local made = Tensor.take(0)
  Tensor.press(tonumber(fill_info(handle).size_bytes))
  return made
end

-- Makes a tensor of zeros on a device, or of `values`: a list, a string of its bytes (strings: a list), or an array of cdata that is copied.
function Tensor.create(device, dtype, list, values, options)
  local number = dtypes.number(dtype)
  local dims, rank = dims_of(list)
  local flags = 0
  for name, value in pairs(options or {}) do
    if name ~= "pinned" or type(value) ~= "boolean" then invalid("a tensor has no option %s = %s: pinned = true", tostring(name), tostring(value)) end
    flags = value and library.constants.EVN_TENSOR_PINNED or 0
  end
  local made = Tensor.take(api.tensor_create(device, number, dims, rank, flags, out, scratch))
  Tensor.press(tonumber(fill_info(made.owned.handle).size_bytes))
  if values ~= nil then made:set(values) end
  return made
end

-- A tensor over the memory of an array of cdata, without a copy. The tensor keeps the array, as do requests that have the tensor.
function Tensor.wrap(runtime, array, dtype, list)
  local number = dtypes.number(dtype)
  local wanted = dtypes.element(number)
  if type(array) ~= "cdata" or dtypes.of_array(array) ~= wanted then
    local is = type(array) == "cdata" and tostring(ffi.typeof(array)) or type(array)
    invalid("an array of %s is wanted for %s, as ffi.new makes it, not %s", wanted, dtype, is)
  end
  local dims, rank = dims_of(list)
  local object = {memory = array}
  return Tensor.take(api.tensor_wrap(runtime, array, ffi.sizeof(array), number, dims, rank, nil, nil, out, scratch), object)
end

-- {dtype, dims (a list), rank, count, bytes, device, is_pinned, is_read_only}
function Tensor.info(self)
  local filled = fill_info(handle_of(self))
  local dims, count = {}, 1
  for index = 1, filled.rank do
    dims[index] = library.number(filled.dims[index - 1])
    count = count * tonumber(filled.dims[index - 1])
  end
  return {
    dtype = dtypes.name(filled.dtype), dims = dims, rank = filled.rank, count = count, bytes = library.number(filled.size_bytes),
    device = ffi.string(filled.device), is_pinned = filled.flags % 2 >= 1, is_read_only = filled.flags % 4 >= 2,
  }
end

-- A view of the memory: view[i] for i from 0 to #view - 1. `mode`: "read" (the default) or "write", which also reads.
-- It keeps the memory when the tensor is closed, and is closed itself: tensors are not for others while it is there to be written.
function Tensor.view(self, mode)
  local handle = handle_of(self)
  local filled = fill_info(handle)
  if filled.dtype == library.constants.EVN_DTYPE_STRING then invalid("strings have no view: use strings()") end
  local count = 1
  for index = 0, filled.rank - 1 do count = count * tonumber(filled.dims[index]) end
  local flags = library.constants.EVN_MAP_READ
  if mode == "write" then flags = flags + library.constants.EVN_MAP_WRITE
  elseif mode ~= nil and mode ~= "read" then invalid("a view is for \"read\" or \"write\", not for %s", tostring(mode)) end
  -- A hold of its own: what the view shows is there until the view is closed.
  check(api.tensor_create_view(handle, 0, filled.dims, filled.rank, out, scratch))
  local made = view.make(filled.dtype, out[0], flags, count, tonumber(filled.size_bytes), mode == "write")
  if self.memory then view.keep(made, self.memory) end
  return made
end

-- A tensor over a part of this one's memory, without a copy: elements from number `first` (0 is the first) on, as `dims`.
function Tensor.part(self, first, list)
  local dims, rank = dims_of(list)
  library.whole(first, "first", 0, 2 ^ 53)
  return Tensor.take(api.tensor_create_view(handle_of(self), first, dims, rank, out, scratch), {memory = self.memory})
end

-- Puts values in the place of all elements: a list, a string of bytes, or an array of cdata. Of strings: a list.
function Tensor.set(self, values)
  if fill_info(handle_of(self)).dtype == library.constants.EVN_DTYPE_STRING then return self:set_strings(values) end
  local into = self:view("write")
  local is_set, problem = pcall(view.set, into, values)
  into:close()
  if not is_set then error(problem, 0) end
end

-- All elements as a flat list. 64-bit integers that a number does not have exactly stay cdata; float16 and bfloat16 are their bits.
function Tensor.to_table(self)
  if fill_info(handle_of(self)).dtype == library.constants.EVN_DTYPE_STRING then return self:strings() end
  local from = self:view()
  local list = view.to_table(from)
  from:close()
  return list
end

-- All bytes as a string.
function Tensor.bytes(self)
  local from = self:view()
  local bytes = view.bytes(from)
  from:close()
  return bytes
end

local function string_count(self)
  local filled = fill_info(handle_of(self))
  if filled.dtype ~= library.constants.EVN_DTYPE_STRING then invalid("a tensor of strings is wanted, not of %s", dtypes.name(filled.dtype)) end
  local count = 1
  for index = 0, filled.rank - 1 do count = count * tonumber(filled.dims[index]) end
  return count
end

function Tensor.set_strings(self, list)
  local count = string_count(self)
  if type(list) ~= "table" or #list ~= count then invalid("%d strings are wanted", count) end
  local strings, sizes = ffi.new("const char *[?]", math.max(count, 1)), ffi.new("size_t[?]", math.max(count, 1))
  for index, text in ipairs(list) do
    if type(text) ~= "string" then invalid("element %d is a %s: a string is wanted", index, type(text)) end
    strings[index - 1], sizes[index - 1] = text, #text
  end
  check(api.tensor_set_strings(handle_of(self), strings, sizes, count, scratch))
  return #list -- the list is in use until here
end

-- All elements of a tensor of strings, as a flat list.
function Tensor.strings(self)
  local count, handle = string_count(self), handle_of(self)
  local offsets, size = ffi.new("size_t[?]", count + 1), ffi.new("size_t[1]")
  check(api.tensor_get_strings(handle, nil, 0, offsets, count, size, scratch))
  local bytes = ffi.new("char[?]", size[0] + 1)
  check(api.tensor_get_strings(handle, bytes, size[0], offsets, count, size, scratch))
  local list = {}
  for index = 1, count do
    list[index] = ffi.string(bytes + offsets[index - 1], offsets[index] - offsets[index - 1] - 1)
  end
  return list
end

-- The one string at `index`, 0 being the first.
function Tensor.string(self, index)
  local handle = handle_of(self)
  library.whole(index, "index", 0, 2 ^ 53)
  return library.read(function(buffer, capacity, size)
    return api.tensor_get_string(handle, index, buffer, capacity, size, scratch)
  end)
end

-- Copies all bytes into a tensor of the same dtype and dims; they may lie on different devices. Blocks.
function Tensor.copy_into(self, target)
  check(api.tensor_copy(handle_of(self), handle_of(target), scratch))
end

-- A copy on a device.
function Tensor.copy_to(self, device)
  return Tensor.take(api.tensor_copy_to(handle_of(self), require("evener.device").handle(device), out, scratch))
end

return Tensor

-- Views: the memory of tensors, with every access checked. A view that is closed has no elements.
local ffi = require("ffi")
local library = require("evener.library")
local dtypes = require("evener.dtypes")
local api, check, scratch, invalid = library.api, library.check, library.scratch, library.invalid

local view, methods = {}, {}

-- What the memory of a view belongs to, where that is cdata of the host's.
local kept = setmetatable({}, {__mode = "k"})

function view.keep(made, memory)
  kept[made] = memory
end

local function close(self)
  local handle = self.handle
  if handle == nil then return 0 end
  self.handle, self.count = nil, 0 -- a borrowed one has no handle
  local status = api.tensor_unmap(handle, scratch)
  api.tensor_release(handle)
  return status
end

-- Ends the view; on devices with memory of their own what was written goes there now.
function methods.close(self)
  check(close(self))
end

-- How many bytes there are.
function methods.size(self)
  return tonumber(self.byte_count)
end

-- The memory itself, for ffi.copy and loops. It is not checked, and must not be used when the view is closed or collected.
function methods.pointer(self)
  if self.handle == nil and not self.borrowed then library.fail("EVN_ERROR_INVALID_HANDLE", "the view is closed") end
  return self.data
end

local function outside(self, index)
  if self.handle == nil and not self.borrowed then library.fail("EVN_ERROR_INVALID_HANDLE", "the view is closed") end
  invalid("there is no element %s: the view has %.0f, from 0 on", tostring(index), tonumber(self.count))
end

local function get(self, index)
  if type(index) ~= "number" then
    local method = methods[index]
    if method == nil then invalid("a view has no %s", tostring(index)) end
    return method
  end
  if not (index >= 0 and index < self.count) then outside(self, index) end
  return self.data[index]
end

local function put(self, index, value)
  if type(index) ~= "number" then invalid("a view has no %s to be set", tostring(index)) end
  if not (index >= 0 and index < self.count) then outside(self, index) end
  if not self.writable then library.fail("EVN_ERROR_WRONG_STATE", "the view is for reading: view(\"write\") may be written") end
  self.data[index] = value
end

local metatable = {
  __index = get, __newindex = put, __gc = close,
  __len = function(self) return tonumber(self.count) end,
  __tostring = function(self) return string.format("evener.view of %.0f elements", tonumber(self.count)) end,
}

local types = {}
local function type_of(element)
  if not types[element] then
    local declaration = "struct { %s *data; double count; double byte_count; evn_tensor handle; bool writable; bool borrowed; }"
    types[element] = ffi.metatype(ffi.typeof(string.format(declaration, element)), metatable)
  end
  return types[element]
end

local data = ffi.new("void *[1]")
local size = ffi.new("size_t[1]")

-- The view of a tensor of C, which it takes over. `count`: of elements, or where these are less than a byte, it is that of bytes.
function view.make(dtype, handle, flags, count, bytes, writable)
  local ctype = dtypes.ctype(dtype)
  local status = api.tensor_map(handle, flags, data, size, scratch)
  if status ~= 0 then
    api.tensor_release(handle)
    check(status)
  end
  local made = type_of(ctype)()
  made.data, made.handle, made.writable, made.byte_count = ffi.cast(ctype .. " *", data[0]), handle, writable, bytes
  made.count = math.min(count, bytes / ffi.sizeof(ctype))
  return made
end

-- A view of memory that the library has lent to a callback, which ends it.
function view.borrow(dtype, memory, count, bytes, writable)
  local ctype = dtypes.ctype(dtype)
  local made = type_of(ctype)()
  made.data, made.writable, made.borrowed, made.byte_count = ffi.cast(ctype .. " *", memory), writable, true, bytes
  made.count = math.min(count, bytes / ffi.sizeof(ctype))
  return made
end

function view.end_borrowed(made)
  made.borrowed, made.count, made.data = false, 0, nil
end

function view.bytes(self)
  return self:size() == 0 and "" or ffi.string(self:pointer(), self:size())
end

function view.to_table(self)
  local list, number = {}, library.number
  for index = 0, #self - 1 do
    local value = self[index]
    list[index + 1] = type(value) == "cdata" and (ffi.istype("int64_t", value) or ffi.istype("uint64_t", value)) and number(value) or value
  end
  return list
end

-- Fills a view that may be written from a list, a string of bytes, or an array of cdata.
function view.set(self, values)
  local count, bytes = #self, self:size()
  if type(values) == "string" then
    if #values ~= bytes then invalid("%d bytes: the tensor has %d", #values, bytes) end
    ffi.copy(self:pointer(), values, bytes)
  elseif type(values) == "cdata" then
    local is, wanted = dtypes.of_array(values), dtypes.of_array(ffi.new(tostring(ffi.typeof(self.data)):match("^ctype<(.-) %*>$") .. "[1]"))
    if is ~= wanted then invalid("an array of %s is wanted, not %s", wanted, tostring(ffi.typeof(values))) end
    if ffi.sizeof(values) ~= bytes then invalid("an array of %d bytes: the tensor has %d", ffi.sizeof(values), bytes) end
    ffi.copy(self:pointer(), values, bytes)
  elseif type(values) == "table" then
    if #values ~= count then invalid("%d values: the tensor has %d elements", #values, count) end
    for index = 1, count do
      local value = values[index]
      if type(value) == "boolean" then value = value and 1 or 0 end
      if type(value) ~= "number" and type(value) ~= "cdata" then invalid("value %d is a %s: a number is wanted", index, type(value)) end
      self[index - 1] = value
    end
  else
    invalid("values are a list, a string or an array, not a %s", type(values))
  end
end

-- For who has a view, as those of custom operators.
methods.bytes, methods.to_table, methods.set = view.bytes, view.to_table, view.set

return view

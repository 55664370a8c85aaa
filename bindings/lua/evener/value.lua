-- Values: what models take and give besides tensors: sequences, optionals, maps.
local ffi = require("ffi")
local library = require("evener.library")
local owned = require("evener.owned")
local Tensor = require("evener.tensor")
local api, check, scratch = library.api, library.check, library.scratch

local Value = owned.class("value")
local handle_of, out = Value.handle, Value.out

-- The value that a tensor is, whose bytes must not be written while the value is in use.
function Value.from_tensor(tensor)
  return Value.take(api.value_from_tensor(Tensor.handle(tensor), out, scratch), {memory = tensor.memory})
end

-- What is given for a value: one, or a tensor.
function Value.of(object)
  return getmetatable(object) == Tensor and Value.from_tensor(object) or object
end

-- A sequence, an optional or a map, of the type as C writes it ("seq(tensor(float32))"). parts: a list of values or tensors.
function Value.create(runtime, kind, parts)
  if type(parts) ~= "table" then library.invalid("a list of values is wanted, not a %s", type(parts)) end
  local slots, values = ffi.new("evn_value[?]", math.max(#parts, 1)), {}
  for index, part in ipairs(parts) do
    values[index] = Value.of(part)
    slots[index - 1] = handle_of(values[index])
  end
  -- Values share the memory of their parts.
  return Value.take(api.value_create(runtime, library.text(kind, "the type"), slots, #values, out, scratch), {memory = values})
end

-- The object of a handle that a call gave.
function Value.adopt(handle)
  out[0] = handle
  return Value.take(0)
end

function Value.type(self)
  local handle = handle_of(self)
  return library.read(function(to, room, size) return api.value_get_type(handle, to, room, size, scratch) end)
end

-- The list of parts: of a sequence its elements, of an optional one or none, of a map its keys and its values, of a tensor none.
function Value.parts(self)
  local handle, count, list = handle_of(self), ffi.new("uint32_t[1]"), {}
  check(api.value_part_count(handle, count, scratch))
  for index = 0, count[0] - 1 do
    list[index + 1] = Value.take(api.value_part_at(handle, index, out, scratch), {memory = self.memory})
  end
  return list
end

-- The tensor that a value is, without a copy.
function Value.tensor(self)
  return Tensor.take(api.value_get_tensor(handle_of(self), Tensor.out, scratch), {memory = self.memory})
end

return Value

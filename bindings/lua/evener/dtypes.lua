-- Element types: their names, numbers, and how C has an element.
local ffi = require("ffi")
local library = require("evener.library")

local numbers, names = {}, {}
for name, number in pairs(library.constants) do
  local short = name:match("^EVN_DTYPE_(.+)$")
  if short then
    short = short:lower()
    numbers[short], names[number] = number, short
  end
end

-- What is not here has elements of less than a byte, or is strings.
local elements = {
  float32 = "float", float64 = "double", int8 = "int8_t", uint8 = "uint8_t", int16 = "int16_t", uint16 = "uint16_t", int32 = "int32_t",
  uint32 = "uint32_t", int64 = "int64_t", uint64 = "uint64_t", bool = "uint8_t", float16 = "uint16_t", bfloat16 = "uint16_t",
  complex64 = "complex float", complex128 = "complex", float8e4m3fn = "uint8_t", float8e4m3fnuz = "uint8_t", float8e5m2 = "uint8_t",
  float8e5m2fnuz = "uint8_t", float8e8m0 = "uint8_t",
}

local dtypes = {numbers = numbers, elements = elements}

function dtypes.number(name)
  local number = numbers[name]
  if not number then library.invalid("there is no element type %s (as \"float32\")", tostring(name)) end
  return number
end

-- A number that is newer than this is said as such.
function dtypes.name(number)
  return names[number] or "dtype " .. number
end

-- How LuaJIT writes the type of an array's elements: "float", "unsigned char", ... nil for pointers and references, which own no memory.
function dtypes.of_array(array)
  return tostring(ffi.typeof(array)):match("^ctype<([%w_ ]-) [%[%]%d%?]+>$")
end

local written = {}
for name, element in pairs(elements) do written[numbers[name]] = dtypes.of_array(ffi.new(element .. "[1]")) end

-- The C type of one element of a dtype; dtypes with elements of less than a byte are bytes.
function dtypes.element(number)
  if number == numbers.string then library.invalid("strings are no memory: make a tensor of them from a list") end
  return written[number] or written[numbers.uint8]
end

function dtypes.ctype(number)
  return elements[names[number]] or "uint8_t"
end

return dtypes

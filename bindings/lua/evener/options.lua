-- Tables of options as structs of C. A name that there is none of is an error, as is a value of another type.
local ffi = require("ffi")
local library = require("evener.library")

local options = {}

-- Each gives what goes into the field. `anchors` keeps what C only points to, until the call returns.
local kinds = {}
options.kinds = kinds

function kinds.text(value, what, anchors)
  anchors[#anchors + 1] = library.text(value, what)
  return value
end

function kinds.flag(value, what)
  if type(value) ~= "boolean" then library.invalid("%s is a %s: true or false is wanted", what, type(value)) end
  return value and 1 or 0
end

function kinds.number(value, what)
  if type(value) ~= "number" then library.invalid("%s is a %s: a number is wanted", what, type(value)) end
  if value ~= value then library.invalid("%s is not a number", what) end
  return value
end

function kinds.whole(low, high)
  return function(value, what) return library.whole(value, what, low, high) end
end

function kinds.seconds(value, what)
  local time = library.nanoseconds(value, what)
  if time == 0 then library.invalid("%s is 0: a time above it is wanted", what) end
  return time
end

kinds.deadline = library.deadline
kinds.bytes = kinds.whole(0, 2 ^ 64 - 2048)
kinds.uint64 = kinds.whole(0, 2 ^ 64 - 2048)

function kinds.choice(names)
  return function(value, what)
    if names[value] == nil then
      local all = {}
      for name in pairs(names) do all[#all + 1] = name end
      table.sort(all)
      library.invalid("%s is %s: one of %s is wanted", what, tostring(value), table.concat(all, ", "))
    end
    return names[value]
  end
end

-- A list of texts as a `const char *[]`.
function kinds.texts(values, what, anchors)
  if type(values) ~= "table" then library.invalid("%s is a %s: a list of strings is wanted", what, type(values)) end
  local made = ffi.new("const char *[?]", math.max(#values, 1))
  for index, value in ipairs(values) do made[index - 1] = kinds.text(value, what, anchors) end
  anchors[#anchors + 1] = made
  return made, #values
end

-- The handle of an object of a class.
function kinds.object(class)
  return function(value, what, anchors)
    anchors[#anchors + 1] = value
    return class.handle(value)
  end
end

-- A field of options.filler that sets bits of the struct's `flags`.
function options.flag(bits)
  return {function(value, what, _, made)
    if kinds.flag(value, what) == 1 then made.flags = bit.bor(made.flags, bits) end
  end}
end

-- Something that fills the struct: {struct = "evn_x", init = function of the table, fields = {name = {kind, "field", "count field"}}}.
-- fill(values) gives the struct, which is one for all calls, and is valid until the next.
function options.filler(struct, init, fields)
  local made, size = ffi.new(struct), ffi.sizeof(struct)
  local anchors = {}
  return function(values, what)
    if #anchors > 0 then anchors = {} end
    init(made, size)
    if values == nil then return made end
    if type(values) ~= "table" then library.invalid("%s: a table of options is wanted, not a %s", what, type(values)) end
    for name, value in pairs(values) do
      local field = fields[name]
      if not field then
        local all = {}
        for known in pairs(fields) do all[#all + 1] = known end
        table.sort(all)
        library.invalid("%s: there is no option %s: %s", what, tostring(name), table.concat(all, ", "))
      end
      local converted, count = field[1](value, what .. ": " .. name, anchors, made)
      if field[2] then made[field[2]] = converted end
      if field[3] then made[field[3]] = count end
    end
    return made
  end
end

return options

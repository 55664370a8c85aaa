-- Opens the library, and what every call of it needs: errors, texts, numbers, times.
local ffi = require("ffi")
local constants = require("evener.raw")

ffi.cdef [[
typedef struct evener_timespec { long seconds; long nanoseconds; } evener_timespec;
int clock_gettime(int clock, evener_timespec *time);
void *dlopen(const char *path, int flags);
]]

local library = {constants = constants}

-- Errors are tables: status ("EVN_ERROR_IO"), message, node, device ("" where none is concerned), bytes_requested, bytes_available.
local Error = {}
Error.__index = Error
library.Error = Error

function Error.__tostring(self)
  local text = self.status .. ": " .. self.message
  if self.node ~= "" then text = text .. " [node " .. self.node .. "]" end
  if self.device ~= "" then text = text .. " [device " .. self.device .. "]" end
  if self.bytes_requested ~= 0 then
    text = text .. " [" .. tostring(self.bytes_requested) .. " bytes asked, " .. tostring(self.bytes_available) .. " left]"
  end
  return text
end

function library.new_error(status, message)
  return setmetatable({status = status, message = message, node = "", device = "", bytes_requested = 0, bytes_available = 0}, Error)
end

-- Raises an error of this binding's own.
function library.fail(status, ...)
  error(library.new_error(status, string.format(...)))
end

local function invalid(...)
  library.fail("EVN_ERROR_INVALID_ARGUMENT", ...)
end
library.invalid = invalid

local function dotted(version)
  return string.format("%d.%d.%d", bit.rshift(version, 16), bit.band(bit.rshift(version, 8), 255), bit.band(version, 255))
end

-- Looks whether the structs that are declared here lie in the library as they do here: offsets of all fields, and sizes, which may grow
-- at the end. `layout`: its evn_abi_layout, nil in a library that has none.
function library.compare_layouts(layout, name)
  local offset, size = ffi.new("size_t[1]"), ffi.new("size_t[1]")
  for _, fields in ipairs(require("evener.raw_layouts")) do
    local struct = fields[1]
    local is_known = layout(struct, nil, offset, size, nil) == constants.EVN_OK
    if not is_known or size[0] < ffi.sizeof(struct) then
      library.fail("EVN_ERROR_VERSION", "%s does not fit this binding: expected %s of %d bytes, found %s", name, struct, ffi.sizeof(struct),
        is_known and tostring(tonumber(size[0])) or "none")
    end
    for index = 2, #fields do
      local here = ffi.offsetof(struct, fields[index])
      is_known = layout(struct, fields[index], offset, size, nil) == constants.EVN_OK
      if not is_known or offset[0] ~= here then
        library.fail("EVN_ERROR_VERSION", "%s does not fit this binding: expected %s.%s at byte %d, found it %s", name, struct, fields[index], here,
          is_known and "at " .. tonumber(offset[0]) or "nowhere")
      end
    end
  end
end

-- Gets the table of functions from an evn_get_api, and looks whether it has all that is declared here. `found` gives the library's version.
function library.negotiate(get_api, name, found)
  local expected = constants.EVN_VERSION_NUMBER
  local function refuse(version)
    library.fail("EVN_ERROR_VERSION", "%s does not fit this binding: expected ABI %s, found %s", name, dotted(expected), dotted(version))
  end
  local out = ffi.new("const evn_api *[1]")
  if get_api(expected, out) ~= constants.EVN_OK or out[0] == nil then refuse(found()) end
  -- Only the head may be read before the size is known.
  if out[0].struct_size < ffi.sizeof("evn_api") then refuse(out[0].api_version) end
  library.compare_layouts(out[0].abi_layout, name)
  return out[0]
end

-- The symbol of a library that is open, or nil.
local function symbol(opened, name)
  local is_there, found = pcall(function() return opened[name] end)
  return is_there and found or nil
end

-- Opens the library at a path (or a name that the system's loader knows) and gives its table of functions.
function library.open(path)
  local is_open, opened = pcall(ffi.load, path)
  if not is_open then
    library.fail("EVN_ERROR_IO", "the Evener library %s cannot be opened: %s (EVENER_LIBRARY may name another)", path, tostring(opened))
  end
  if not symbol(opened, "evn_get_api") then
    library.fail("EVN_ERROR_VERSION", "%s is no Evener library of version 0.2 or later: it has no evn_get_api", path)
  end
  local api = library.negotiate(opened.evn_get_api, path, function()
    return symbol(opened, "evn_version_number") and opened.evn_version_number() or 0
  end)
  -- The end of a Lua state closes what ffi.load has opened, while threads of the library may still be at work: it stays.
  local keep = 2 + (ffi.os == "OSX" and 0x80 or 0x1000) -- RTLD_NOW, RTLD_NODELETE
  if ffi.C.dlopen(path, keep) == nil then library.fail("EVN_ERROR_IO", "the Evener library %s cannot be kept open", path) end
  library.opened = opened
  return api
end

local named = os.getenv("EVENER_LIBRARY")
local default = ffi.os == "OSX" and "libevener.0.dylib" or "libevener.so.0"
local api = library.open(named and named ~= "" and named or default)
library.api = api

-- One error for all calls: nothing of Lua runs between a call and the reading of what it wrote.
local scratch = ffi.new("evn_error")
api.error_init(scratch, ffi.sizeof(scratch))
library.scratch = scratch

-- Raises what a call came to, where that is not EVN_OK. The call was given `library.scratch`, or nothing, then `what` says what failed.
function library.check(status, what)
  if status == 0 then return end
  local name = ffi.string(api.status_name(status))
  if what then error(library.new_error(name, what)) end
  local made = library.new_error(name, ffi.string(scratch.message))
  made.node, made.device = ffi.string(scratch.node), ffi.string(scratch.device)
  made.bytes_requested, made.bytes_available = library.number(scratch.bytes_requested), library.number(scratch.bytes_available)
  api.error_init(scratch, ffi.sizeof(scratch))
  error(made)
end
local check = library.check

-- As check, and without an error whether it went well: false for a status that is expected. Others are raised.
function library.unless(status, expected)
  if status == expected then return false end
  check(status)
  return true
end

-- A 64-bit integer as a number where that has it exactly, else as it is.
local LARGEST = 2 ^ 53
local int64, uint64 = ffi.typeof("int64_t"), ffi.typeof("uint64_t")
function library.number(value)
  if type(value) == "number" then return value end
  local as_number = tonumber(value)
  if as_number < LARGEST and as_number > -LARGEST then return as_number end
  return value
end

-- A whole number from low to high, of a number or a 64-bit cdata.
function library.whole(value, what, low, high)
  local is_cdata = ffi.istype(int64, value) or ffi.istype(uint64, value)
  local number = is_cdata and tonumber(value) or value
  if type(number) ~= "number" or (not is_cdata and number % 1 ~= 0) or number < low or number > high then
    invalid("%s is %s: a whole number from %.0f to %.0f is wanted", what, tostring(value), low, high)
  end
  return value
end

-- A text for C, which ends it at the first NUL.
function library.text(value, what)
  if type(value) ~= "string" then invalid("%s is a %s: a string is wanted", what, type(value)) end
  if value:find("\0", 1, true) then invalid("%s has a NUL in it", what) end
  return value
end

local FORMATS = {text = 0, json = 1, dot = 2, svg = 3, prometheus = 4}
function library.format(name)
  local format = FORMATS[name or "text"]
  if not format then invalid("there is no format %s: text, json, dot, svg, prometheus", tostring(name)) end
  return format
end

-- The text that a function writes: call(buffer, capacity, size) gives its status. What grows meanwhile is asked for again with more room.
local buffer, capacity = ffi.new("char[?]", 65536), 65536
local size = ffi.new("size_t[1]")
function library.read(call)
  for _ = 1, 8 do
    local status = call(buffer, capacity, size)
    if status == 0 then return ffi.string(buffer, size[0] - 1) end
    if status ~= constants.EVN_ERROR_BUFFER_TOO_SMALL then check(status) end
    local needed = tonumber(scratch.bytes_requested)
    local room = needed + needed / 4 + 4096
    buffer, capacity = ffi.new("char[?]", room), room
  end
  library.fail("EVN_ERROR_BUFFER_TOO_SMALL", "the text grew faster than the room for it")
end

-- Seconds of CLOCK_MONOTONIC, which deadlines are in.
local time = ffi.new("evener_timespec")
local clock = ffi.os == "OSX" and 6 or 1
function library.now()
  if ffi.C.clock_gettime(clock, time) ~= 0 then library.fail("EVN_ERROR_INTERNAL", "the system has no monotonic clock") end
  return tonumber(time.seconds) + tonumber(time.nanoseconds) * 1e-9
end

-- Nanoseconds of a number of seconds; nil is as long as it takes.
local FOREVER = ffi.cast("uint64_t", -1LL)
function library.nanoseconds(seconds, what)
  if seconds == nil then return FOREVER end
  if type(seconds) ~= "number" or not (seconds >= 0) then invalid("%s is %s: seconds are wanted", what, tostring(seconds)) end
  if seconds > 1e10 then return FOREVER end
  return ffi.cast("uint64_t", seconds * 1e9)
end

-- A time of library.now() for deadline_ns, where 0 is none.
function library.deadline(seconds, what)
  if type(seconds) ~= "number" or seconds ~= seconds then invalid("%s is %s: seconds of now() are wanted", what, tostring(seconds)) end
  return library.nanoseconds(math.max(seconds, 1e-9), what)
end

function library.version()
  return ffi.string(api.version())
end

function library.passes(format)
  format = library.format(format or "json")
  return library.read(function(to, room, length)
    return api.describe_passes(format, to, room, length, scratch)
  end)
end

return library

-- Devices of a runtime, and their memory.
local ffi = require("ffi")
local library = require("evener.library")
local owned = require("evener.owned")
local Tensor = require("evener.tensor")
local api, check, scratch = library.api, library.check, library.scratch

local Device = owned.class("device")
local handle_of = Device.handle

local KINDS = {[0] = "cpu", "opencl", "other"}
local CLASSES = {[0] = "unknown", "cpu", "gpu", "accelerator"}
local STATES = {[0] = "ready", "quarantined", "lost"}
local TRIMS = {never = 0, idle = 1, always = 2}
local FEATURES = {fp16 = 1, bf16 = 2, int8_dot = 4, unified_memory = 8, subgroups = 16}

-- {kind, class, name, description, driver, compute_units, memory_bytes, largest_allocation, features, identity, state, quarantines}
function Device.info(self)
  local handle = handle_of(self)
  local info = ffi.new("evn_device_info")
  api.device_info_init(info, ffi.sizeof(info))
  check(api.device_get_info(handle, info, scratch))
  local features = {}
  for name, flag in pairs(FEATURES) do features[name] = bit.band(info.features, flag) ~= 0 end
  return {
    kind = KINDS[info.kind] or "kind " .. info.kind, class = CLASSES[info.device_class] or "class " .. info.device_class,
    name = ffi.string(info.name), identity = ffi.string(info.identity), compute_units = info.compute_units, features = features,
    memory_bytes = library.number(info.memory_bytes), largest_allocation = library.number(info.largest_allocation),
    state = STATES[info.state] or "state " .. info.state, quarantines = info.quarantines,
    description = library.read(function(to, room, size) return api.device_description(handle, to, room, size, scratch) end),
    driver = library.read(function(to, room, size) return api.device_driver(handle, to, room, size, scratch) end),
  }
end

-- Why the device is not ready; "" where it is.
function Device.condition(self)
  local handle = handle_of(self)
  return library.read(function(to, room, size) return api.device_condition(handle, to, room, size, scratch) end)
end

local CLASSES_OF_MEMORY = {"tensors", "weights", "packed", "arenas", "scratch", "loading", "states", "heap"}
local COUNTED = {"current", "peak", "reserved", "limit", "allocations", "cache_hits", "largest_free_block", "cached", "unused", "free_blocks",
                 "weights_dropped", "weights_restored", "cache_limit"}

-- The ledger of the device's memory, in bytes, by the names of evn_memory_stats; by_class = {tensors, weights, ...}. A limit that is none is
-- math.huge.
function Device.memory_stats(self)
  local handle = handle_of(self)
  local stats = ffi.new("evn_memory_stats")
  api.memory_stats_init(stats, ffi.sizeof(stats))
  check(api.device_get_memory_stats(handle, stats, scratch))
  local made = {fragmentation = stats.fragmentation, by_class = {}}
  for _, name in ipairs(COUNTED) do
    local value = stats[name]
    made[name] = value == ffi.cast("uint64_t", -1LL) and math.huge or library.number(value)
  end
  for index, name in ipairs(CLASSES_OF_MEMORY) do made.by_class[name] = library.number(stats.by_class[index - 1]) end
  for name, number in pairs(TRIMS) do
    if number == stats.trim then made.trim = name end
  end
  return made
end

function Device.reset_memory_peak(self)
  check(api.device_reset_memory_peak(handle_of(self), scratch))
end

-- A number of bytes for C, where math.huge is no limit.
local function limit_of(bytes, what)
  if bytes == math.huge then return ffi.cast("uint64_t", -1LL) end
  return library.whole(bytes, what, 0, 2 ^ 64 - 2048)
end

-- Changes the cap on what the library holds on the device; math.huge: none.
function Device.set_memory_limit(self, bytes)
  check(api.device_set_memory_limit(handle_of(self), limit_of(bytes, "the limit"), scratch))
end

function Device.trim_memory(self)
  check(api.device_trim_memory(handle_of(self), scratch))
end

-- What the device's pool keeps of blocks that nobody uses: so many bytes (math.huge: all), given back "never", "idle" or "always".
function Device.set_cache_policy(self, bytes, trim)
  if not TRIMS[trim] then library.invalid("trim is %s: never, idle or always is wanted", tostring(trim)) end
  check(api.device_set_cache_policy(handle_of(self), limit_of(bytes, "the limit of the cache"), TRIMS[trim], scratch))
end

-- A tensor on this device: of zeros, or of `values` (see Tensor.create). options = {pinned = true}
function Device.tensor(self, dtype, dims, values, options)
  return Tensor.create(handle_of(self), dtype, dims, values, options)
end

return Device

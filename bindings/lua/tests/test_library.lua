-- How the library is found, and that it fits.
local ffi = require("ffi")
local evener = require("evener")
local library = require("evener.library")
local common = require("common")
local test, raises = common.test, common.raises

test("a library that does not fit is an error with both versions", function()
  local refused = raises("EVN_ERROR_VERSION", library.negotiate, function() return 15 end, "lib", function() return 0x000100 end)
  common.contains(tostring(refused), "lib does not fit", "expected ABI 0.3.0, found 0.1.0")
  local short = ffi.new("evn_api")
  short.struct_size, short.api_version = 8, 0x000203
  local function is_short(_, out)
    out[0] = short
    return 0
  end
  common.contains(tostring(raises("EVN_ERROR_VERSION", library.negotiate, is_short, "lib", error)), "found 0.2.3")
  raises("EVN_ERROR_VERSION", library.negotiate, function() return 0 end, "lib", function() return 0x010000 end)
  assert(library.negotiate(library.opened.evn_get_api, "lib", error).session_run ~= nil)
end)

test("a library whose structs lie elsewhere is an error with both places", function()
  local layout = library.api.abi_layout
  library.compare_layouts(layout, "lib")
  local function other(change)
    return function(structure, field, offset, size)
      local status = layout(structure, field, offset, size, nil)
      return change(structure, field, offset, size) or status
    end
  end
  library.compare_layouts(other(function(_, field, _, size) if not field then size[0] = size[0] + 8 end end), "lib") -- structs grow
  local moved = other(function(structure, field, offset) if structure == "evn_run_options" and field == "timeout_ns" then offset[0] = 16 end end)
  common.contains(tostring(raises("EVN_ERROR_VERSION", library.compare_layouts, moved, "lib")), "lib does not fit", "evn_run_options.timeout_ns at byte 8", "at 16")
  local older = other(function(_, field) if field == "skipped_outputs" then return 1 end end)
  common.contains(tostring(raises("EVN_ERROR_VERSION", library.compare_layouts, older, "lib")), "skipped_outputs", "nowhere")
  local shrunk = other(function(structure, field, _, size) if structure == "evn_error" and not field then size[0] = 8 end end)
  common.contains(tostring(raises("EVN_ERROR_VERSION", library.compare_layouts, shrunk, "lib")), "evn_error of", "found 8")
end)

test("what is no Evener library is an error", function()
  common.contains(tostring(raises("EVN_ERROR_IO", library.open, "/nowhere/libevener.so")), "/nowhere/libevener.so", "EVENER_LIBRARY")
  if ffi.os == "Linux" then common.contains(tostring(raises("EVN_ERROR_VERSION", library.open, "libc.so.6")), "evn_get_api") end
end)

test("the version and the passes", function()
  common.contains(evener.version(), "0.")
  common.contains(evener.passes(), "summary")
  assert(evener.now() > 0)
end)

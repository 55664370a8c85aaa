-- Handles with an owner: a cdata that gives its handle back when it is closed, and else when the collector finds it.
local ffi = require("ffi")
local library = require("evener.library")
local api = library.api

local releases = {
  runtime = function(handle) return api.runtime_release(handle) end,
  device = function(handle) return api.device_release(handle) end,
  tensor = function(handle) return api.tensor_release(handle) end,
  model = function(handle) return api.model_release(handle) end,
  session = function(handle) return api.session_release(handle) end,
  cancel = function(handle) return api.cancel_release(handle) end,
  state = function(handle) return api.state_release(handle) end,
  value = function(handle) return api.value_release(handle) end,
  quantizer = function(handle) return api.quantizer_release(handle) end,
  trainer = function(handle) return api.trainer_release(handle) end,
}

local owned = {}

-- A class of objects that have one handle each, in `owned`. Its objects are tables; close may be called twice, and the other methods
-- raise an error behind it.
function owned.class(kind)
  local release = releases[kind]
  ffi.cdef(string.format("typedef struct evener_%s { evn_%s handle; } evener_%s;", kind, kind, kind))
  local function give_back(self)
    local handle = self.handle
    if handle == nil then return end
    self.handle = nil
    release(handle)
  end
  local make = ffi.metatype("evener_" .. kind, {__gc = give_back})
  local class = {kind = kind}
  class.__index = class

  -- What a function of C that makes one is given.
  local out = ffi.new(string.format("evn_%s[1]", kind))
  class.out = out

  -- The object of the handle that a call has put into `out`.
  function class.take(status, object)
    library.check(status)
    object = object or {}
    object.owned = make(out[0])
    return setmetatable(object, class)
  end

  function class.close(self)
    give_back(self.owned)
  end

  function class.is_closed(self)
    return self.owned.handle == nil
  end

  local function no_object(object)
    if getmetatable(object) == class then library.fail("EVN_ERROR_INVALID_HANDLE", "the %s is closed", kind) end
    library.invalid("a %s is wanted, not a %s", kind, type(object))
  end

  -- The handle of an object. What is no object of the class, or closed, is an error.
  function class.handle(object)
    if getmetatable(object) ~= class then no_object(object) end
    local handle = object.owned.handle
    if handle == nil then no_object(object) end
    return handle
  end

  function class.__tostring(self)
    return string.format("evener.%s%s", kind, self.owned.handle == nil and " (closed)" or "")
  end
  return class
end

return owned

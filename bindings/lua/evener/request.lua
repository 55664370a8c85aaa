-- Requests: runs on threads of the library's, which are asked whether they have ended. No function of Lua is called from those threads.
local ffi = require("ffi")
local library = require("evener.library")
local Tensor = require("evener.tensor")
local api, check, scratch = library.api, library.check, library.scratch

ffi.cdef [[ typedef struct evener_request { evn_request handle; evn_cancel cancel; } evener_request; ]]

local Request = {kind = "request"}
Request.__index = Request

local done = ffi.new("bool[1]")
local FOREVER = library.nanoseconds(nil)

local function release(self)
  local handle, cancel = self.handle, self.cancel
  self.handle, self.cancel = nil, nil
  if handle ~= nil then api.request_release(handle) end
  if cancel ~= nil then api.cancel_release(cancel) end
end

-- Requests that have not been seen to end, with the tensors that they use: these stay whatever becomes of the request's object.
local under_way = {}

-- The collector comes here for requests that have ended, and at the end of the Lua state for all: memory of Lua's that a request uses must
-- stay until it has ended, so it is cancelled and waited for.
local make = ffi.metatype("evener_request", {__gc = function(self)
  if self.handle ~= nil then
    if self.cancel ~= nil then api.cancel_request(self.cancel) end
    api.request_wait(self.handle, FOREVER, done, scratch)
  end
  release(self)
end})

local function has_ended(owned)
  check(api.request_wait(owned.handle, 0, done, scratch))
  return done[0]
end

-- Lets go of what requests used that have ended meanwhile.
local function sweep()
  for owned, entry in pairs(under_way) do
    if has_ended(owned) then
      under_way[owned] = nil
      if entry.is_closed then release(owned) end
    end
  end
end

-- The number of requests whose tensors are kept.
function Request.under_way()
  sweep()
  local count = 0
  for _ in pairs(under_way) do count = count + 1 end
  return count
end

-- Requests are swept when twice as many are there as the last time left.
local count, next_sweep = 0, 64

-- The object of a request that a call submits: submit(request) gives its status. `uses`: what must stay until it has ended.
function Request.submit(submit, uses, cancel, outputs, names)
  count = count + 1
  if count >= next_sweep then
    count = Request.under_way()
    next_sweep = math.max(64, 2 * count)
  end
  local handle = ffi.new("evn_request[1]")
  local owned = make()
  if cancel then owned.cancel = cancel end
  local status = submit(handle)
  if status ~= 0 then
    release(owned)
    check(status)
  end
  owned.handle = handle[0]
  local entry = {uses = uses}
  under_way[owned] = entry
  return setmetatable({owned = owned, entry = entry, outputs = outputs, names = names}, Request)
end

local function owned_of(self)
  if getmetatable(self) ~= Request then library.invalid("a request is wanted, not a %s", type(self)) end
  if self.entry.is_closed then library.fail("EVN_ERROR_INVALID_HANDLE", "the request is closed") end
  return self.owned
end

-- Waits until it has ended, or so many seconds (nil: as long as it takes), and says whether it has.
function Request.wait(self, timeout)
  local owned = owned_of(self)
  check(api.request_wait(owned.handle, library.nanoseconds(timeout, "the timeout"), done, scratch))
  if done[0] then under_way[owned] = nil end
  return done[0]
end

function Request.done(self)
  return self:wait(0)
end

-- The outputs of a request that has ended, by place and by name; tensors that were given are there again. What its run failed with is raised;
-- EVN_ERROR_BUSY where it has not ended, EVN_ERROR_WRONG_STATE where they have been taken.
function Request.take(self)
  local owned, total = owned_of(self), #self.names
  local slots = ffi.new("evn_tensor[?]", math.max(total, 1))
  local status = api.request_take(owned.handle, slots, total, scratch)
  if status ~= library.constants.EVN_ERROR_BUSY then under_way[owned] = nil end
  check(status)
  local taken = {}
  for index = 1, total do
    local tensor = self.outputs[index]
    if not tensor and slots[index - 1] ~= nil then tensor = Tensor.adopt(slots[index - 1]) end
    taken[index] = tensor
    taken[self.names[index]] = tensor
  end
  self.outputs = {}
  return taken
end

-- Asks its run to stop, where it has a token of its own: a request that was given options.cancel is ended by that.
function Request.cancel(self)
  local owned = owned_of(self)
  if owned.cancel == nil then library.fail("EVN_ERROR_WRONG_STATE", "the request was given a token: cancel that") end
  check(api.cancel_request(owned.cancel), "the request cannot be cancelled")
end

-- Ends it: a run that is under way is cancelled, and its tensors stay until it has ended.
function Request.close(self)
  if self.entry.is_closed then return end
  local owned = owned_of(self)
  if owned.cancel ~= nil then api.cancel_request(owned.cancel) end
  self.entry.is_closed = true
  if not under_way[owned] or has_ended(owned) then
    under_way[owned] = nil
    release(owned)
  end
end

function Request.is_closed(self)
  return self.entry.is_closed == true
end

function Request.__tostring(self)
  return self.entry.is_closed and "evener.request (closed)" or "evener.request"
end

return Request

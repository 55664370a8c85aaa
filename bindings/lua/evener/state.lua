-- States: what one stream keeps from run to run.
local ffi = require("ffi")
local library = require("evener.library")
local owned = require("evener.owned")
local options = require("evener.options")
local kinds = options.kinds
local api, check, scratch, constants = library.api, library.check, library.scratch, library.constants

local State = owned.class("state")
local handle_of, out = State.handle, State.out

local fill = options.filler("evn_state_options", api.state_options_init, {
  dims = {kinds.shapes, "dims", "dim_count"}, on_demand = options.flag(constants.EVN_STATE_ON_DEMAND),
  float16 = options.flag(constants.EVN_STATE_FLOAT16), int8 = options.flag(constants.EVN_STATE_INT8),
})

-- A state of a session. pairs: a list of {output = , input = , capacity = }. options = {dims = {name = dims}, on_demand, float16, int8}
function State.new(session, pairs, values)
  if type(pairs) ~= "table" then library.invalid("a list of pairs is wanted, not a %s", type(pairs)) end
  local filled = fill(values, "options of a state")
  local made = ffi.new("evn_state_pair[?]", math.max(#pairs, 1))
  local names = {}
  for index, pair in ipairs(pairs) do
    local at, what = made[index - 1], "pair " .. index
    if type(pair) ~= "table" then library.invalid("%s is a %s: {output = , input = , capacity = } is wanted", what, type(pair)) end
    at.output, at.input = kinds.text(pair.output, what .. ": output", names), kinds.text(pair.input, what .. ": input", names)
    at.capacity = library.whole(pair.capacity or 0, what .. ": capacity", 0, 2 ^ 53)
  end
  return State.take(api.state_create(session, made, #pairs, filled, out, scratch), {pair_count = #names / 2})
end

function State.reset(self)
  check(api.state_reset(handle_of(self), scratch))
end

-- Another state of the same contents, which goes its own way.
function State.fork(self)
  return State.take(api.state_fork(handle_of(self), out, scratch), {pair_count = self.pair_count})
end

-- The positions of a pair; 1 is the first.
function State.length(self, pair)
  local positions = ffi.new("int64_t[1]")
  library.whole(pair, "the pair", 1, self.pair_count)
  check(api.state_length(handle_of(self), pair - 1, positions, scratch))
  return library.number(positions[0])
end

function State.truncate(self, positions)
  check(api.state_truncate(handle_of(self), library.whole(positions, "positions", -2 ^ 53, 2 ^ 53), scratch))
end

-- The contents as a string of bytes, and back.
function State.save(self)
  local handle = handle_of(self)
  local size = ffi.new("size_t[1]")
  check(api.state_save(handle, nil, 0, size, scratch))
  local buffer = ffi.new("char[?]", size[0])
  check(api.state_save(handle, buffer, size[0], size, scratch))
  return ffi.string(buffer, size[0])
end

function State.restore(self, bytes)
  if type(bytes) ~= "string" then library.invalid("a string of save() is wanted, not a %s", type(bytes)) end
  check(api.state_restore(handle_of(self), bytes, #bytes, scratch))
end

function State.describe(self, format)
  local handle, number = handle_of(self), library.format(format)
  return library.read(function(to, room, size) return api.state_describe(handle, number, to, room, size, scratch) end)
end

return State

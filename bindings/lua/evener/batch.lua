-- The tensors of a batch, as calls that take a model's inputs want them: for objects with find_input, input_count and slots.
local ffi = require("ffi")
local library = require("evener.library")
local Tensor = require("evener.tensor")

local batch = {}

-- Gives an object room for the tensors of a batch.
function batch.prepare(self, input_count)
  self.input_count = input_count
  self.slots = ffi.new("evn_tensor[?]", math.max(input_count, 1))
end

-- Puts the tensors of a batch, by place or by name, into the slots; returns these and their number.
function batch.gather(self, tensors)
  if type(tensors) ~= "table" then library.invalid("a table of tensors is wanted, not a %s", type(tensors)) end
  for index = 0, self.input_count - 1 do self.slots[index] = nil end
  for key, tensor in pairs(tensors) do
    local place = type(key) == "string" and self:find_input(key) or key
    if type(place) ~= "number" or place % 1 ~= 0 or place < 1 or place > self.input_count then
      library.invalid("there is no input %s: the model has %d", tostring(key), self.input_count)
    end
    self.slots[place - 1] = Tensor.handle(tensor)
  end
  return self.slots, self.input_count
end

return batch

-- Runs a model on zeros, once by itself and then as several requests, and says where its nodes run.
--
-- usage: luajit classify.lua MODEL.onnx [CONFIG.yaml [SIZE ...]]
local evener = require("evener")

local path = assert(arg[1], "usage: luajit classify.lua MODEL.onnx [CONFIG.yaml [SIZE ...]]")
local runtime = evener.runtime({config_path = arg[2] ~= "" and arg[2] or nil})
local session = runtime:session(path)

-- Dims that the model leaves open have the sizes that are given, in their order, else 1 on axis 0 and 128 elsewhere.
local inputs, next_size = {}, 3
local function size_of(axis)
  next_size = next_size + 1
  return tonumber(arg[next_size - 1]) or axis == 1 and 1 or 128
end
for _, input in ipairs(session:inputs()) do
  local dims = {}
  for axis, dim in ipairs(assert(input.dims, "input " .. input.name .. " has no rank")) do dims[axis] = dim == -1 and size_of(axis) or dim end
  inputs[input.name] = runtime:tensor(input.dtype, dims)
end

local outputs = session:run(inputs)
for _, output in ipairs(session:outputs()) do
  print(output.name .. ": " .. table.concat(outputs[output.name]:info().dims, " x "))
end

-- Where the largest value of the first output is.
local scores = outputs[1]:view()
local best = 0
for index = 1, #scores - 1 do
  if scores[index] > scores[best] then best = index end
end
print("largest: " .. best)
scores:close()

-- Requests run on threads of the library's, and are asked whether they have ended.
local requests = {}
for number = 1, 4 do requests[number] = session:submit(inputs, {timeout = 30}) end
for _, request in ipairs(requests) do
  request:wait()
  request:take()
  request:close()
end
print(session:explain())

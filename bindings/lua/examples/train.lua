-- Trains a network on written digits, and runs what it has become.
--
-- usage: luajit train.lua FOLDER TRAINED.onnx   (FOLDER: what tests/training/make_digits_run.py has written, a network and pictures of 28 x 28 with
-- their classes, as plain numbers)
local ffi = require("ffi")
local evener = require("evener")

local BATCH, PIXELS = 32, 28 * 28
local folder, trained = arg[1], assert(arg[2], "usage: luajit train.lua FOLDER TRAINED.onnx")

local function read(name, ctype)
  local file = assert(io.open(folder .. "/" .. name, "rb"))
  local bytes = file:read("*a")
  file:close()
  local made = ffi.new(ctype .. "[?]", #bytes / ffi.sizeof(ctype))
  ffi.copy(made, bytes, #bytes)
  return made
end

local images, labels = read("images.f32", "float"), read("labels.i64", "int64_t")
local held = ffi.sizeof(labels) / 8 - BATCH -- the last pictures are not learned
local runtime = evener.runtime()
local trainer = runtime:trainer(folder .. "/simple_cnn.onnx", {optimizer = "adamw", learning_rate = 0.002})

local function batch(first)
  return {x = runtime:tensor("float32", {BATCH, 1, 28, 28}, ffi.string(images + first * PIXELS, BATCH * PIXELS * 4))},
         runtime:tensor("int64", {BATCH}, ffi.string(labels + first, BATCH * 8))
end

for epoch = 1, 4 do
  local step
  for first = 0, held - BATCH, BATCH do step = trainer:step(batch(first)) end
  local found = trainer:evaluate(batch(held))
  print(string.format("epoch %d: loss %.4f, %d of %d read rightly", epoch, step.loss, found.correct, found.count))
end

trainer:export(trained) -- an ONNX file, for any engine
local scores = runtime:session(trained):run((batch(held)))[1]:view()
local best = 0
for class = 1, 9 do
  if scores[class] > scores[best] then best = class end
end
print(string.format("the first of them is a %d: it was read as %d", tonumber(labels[held]), best))

-- Quantization: a float32 model becomes one that computes with fewer bits.
local ffi = require("ffi")
local library = require("evener.library")
local owned = require("evener.owned")
local options = require("evener.options")
local batch = require("evener.batch")
local models = require("evener.model")
local dtypes = require("evener.dtypes")
local api, check, scratch, kinds, constants = library.api, library.check, library.scratch, options.kinds, library.constants

local Quantizer = owned.class("quantizer")
local handle_of, out = Quantizer.handle, Quantizer.out
local Model = models.Model
local flag = options.flag

local fill = options.filler("evn_quantizer_options", api.quantizer_options_init, {
  mode = {kinds.choice({static = 0, dynamic = 1, weights = 2, float16 = 3, bfloat16 = 4}), "mode"},
  calibration = {kinds.choice({minmax = 0, percentile = 1, entropy = 2, mse = 3}), "calibration"},
  activation = {kinds.choice({uint8 = dtypes.numbers.uint8, int8 = dtypes.numbers.int8}), "activation"},
  percentile = {kinds.number, "percentile"}, keep = {kinds.texts, "keep", "keep_count"}, data = {kinds.model_bytes, "data"},
  external_dir = {kinds.text, "external_dir"}, weight_bits = {kinds.whole(0, 8), "weight_bits"},
  block_size = {kinds.whole(0, 2 ^ 31), "block_size"}, cancel = {kinds.object(models.Cancel), "cancel"},
  deadline = {kinds.deadline, "deadline_ns"}, per_tensor = flag(constants.EVN_QUANTIZE_PER_TENSOR),
  contrib = flag(constants.EVN_QUANTIZE_CONTRIB), qoperator = flag(constants.EVN_QUANTIZE_QOPERATOR),
  equalize = flag(constants.EVN_QUANTIZE_EQUALIZE), smooth = flag(constants.EVN_QUANTIZE_SMOOTH),
  correct_bias = flag(constants.EVN_QUANTIZE_CORRECT_BIAS), external_data = flag(constants.EVN_QUANTIZE_EXTERNAL_DATA),
})

local fill_guard = options.filler("evn_guard_options", api.guard_options_init, {
  error = flag(constants.EVN_GUARD_ERROR), speed = flag(constants.EVN_GUARD_SPEED), min_cosine = {kinds.number, "min_cosine"},
  min_layer_sqnr_db = {kinds.number, "min_layer_sqnr_db"},
})

local number_out = ffi.new("uint32_t[1]")

-- Reads a float32 model: a file, or with path nil the bytes in options.data.
function Quantizer.new(runtime, path, values)
  local filled = fill(values, "options of a quantizer")
  if path ~= nil then library.text(path, "the path") end
  local made = Quantizer.take(api.quantizer_create(runtime, path, filled, out, scratch))
  check(api.quantizer_input_count(made.owned.handle, number_out, scratch))
  batch.prepare(made, number_out[0])
  return made
end

-- The place of an input, 1 being the first.
function Quantizer.find_input(self, name)
  check(api.quantizer_find_input(handle_of(self), library.text(name, "the name"), number_out, scratch))
  return number_out[0] + 1
end

-- Runs the float32 model over a batch of calibration.
function Quantizer.add_batch(self, tensors)
  local handle, slots, count = handle_of(self), batch.gather(self, tensors)
  check(api.quantizer_add_batch(handle, slots, count, scratch))
end

-- Takes back layers that lose too much, or time. options = {error, speed (both where neither is there), min_cosine, min_layer_sqnr_db}
function Quantizer.guard(self, tensors, values)
  local filled = fill_guard(values, "options of a guard")
  local handle, slots, count = handle_of(self), batch.gather(self, tensors)
  check(api.quantizer_guard(handle, slots, count, filled, scratch))
end

-- The quantized model.
function Quantizer.finish(self)
  return Model.take(api.quantizer_finish(handle_of(self), Model.out, scratch))
end

function Quantizer.save(self, path)
  check(api.quantizer_save(handle_of(self), library.text(path, "the path"), scratch))
end

-- Runs both models over the same inputs, and adds to the report how far they are apart.
function Quantizer.verify(self, tensors)
  local handle, slots, count = handle_of(self), batch.gather(self, tensors)
  check(api.quantizer_verify(handle, slots, count, scratch))
end

function Quantizer.report(self, format)
  local handle, number = handle_of(self), library.format(format)
  return library.read(function(to, room, size) return api.quantizer_report(handle, number, to, room, size, scratch) end)
end

return Quantizer

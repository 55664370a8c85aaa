-- Training: a model learns where its data is, and comes back as ONNX.
local ffi = require("ffi")
local library = require("evener.library")
local owned = require("evener.owned")
local options = require("evener.options")
local batch = require("evener.batch")
local Tensor = require("evener.tensor")
local models = require("evener.model")
local api, check, scratch, kinds, constants = library.api, library.check, library.scratch, options.kinds, library.constants

local Trainer = owned.class("trainer")
local handle_of, out = Trainer.handle, Trainer.out
local Model = models.Model
local flag = options.flag

local uint32 = kinds.whole(0, 2 ^ 32 - 1)

-- A list of {names = globs, rate_factor = 1, weight_decay = that of the options}.
local function groups(values, what, anchors)
  if type(values) ~= "table" then library.invalid("%s is a %s: a list of groups is wanted", what, type(values)) end
  local made = ffi.new("evn_parameter_group[?]", math.max(#values, 1))
  for index, value in ipairs(values) do
    local at, where = made[index - 1], what .. " " .. index
    if type(value) ~= "table" then library.invalid("%s is a %s: {names = , rate_factor = , weight_decay = } is wanted", where, type(value)) end
    at.names, at.name_count = kinds.texts(value.names, where .. ": names", anchors)
    at.rate_factor, at.weight_decay = constants.EVN_DEFAULT, constants.EVN_DEFAULT
    for _, name in ipairs({"rate_factor", "weight_decay"}) do
      if value[name] ~= nil then at[name] = kinds.number(value[name], where .. ": " .. name) end
    end
  end
  anchors[#anchors + 1] = made
  return made, #values
end

local fill = options.filler("evn_trainer_options", api.trainer_options_init, {
  loss = {kinds.choice({softmax_cross_entropy = 0, bce_with_logits = 1, mse = 2, l1 = 3, output = 4}), "loss"},
  optimizer = {kinds.choice({sgd = 0, adam = 1, adamw = 2, adagrad = 3, rmsprop = 4}), "optimizer"},
  schedule = {kinds.choice({constant = 0, step = 1, exponential = 2, cosine = 3, plateau = 4}), "schedule"},
  precision = {kinds.choice({fp32 = constants.EVN_PRECISION_FP32, bf16 = constants.EVN_PRECISION_BF16, fp16 = constants.EVN_PRECISION_FP16}), "precision"},
  output = {kinds.text, "output"}, trainable = {kinds.texts, "trainable", "trainable_count"}, frozen = {kinds.texts, "frozen", "frozen_count"},
  groups = {groups, "groups", "group_count"}, accumulate = {uint32, "accumulate"}, learning_rate = {kinds.number, "learning_rate"},
  momentum = {kinds.number, "momentum"}, dampening = {kinds.number, "dampening"}, weight_decay = {kinds.number, "weight_decay"},
  beta1 = {kinds.number, "beta1"}, beta2 = {kinds.number, "beta2"}, epsilon = {kinds.number, "epsilon"}, alpha = {kinds.number, "alpha"},
  rate_decay = {kinds.number, "rate_decay"}, clip_norm = {kinds.number, "clip_norm"}, clip_value = {kinds.number, "clip_value"},
  warmup_steps = {kinds.uint64, "warmup_steps"}, schedule_steps = {kinds.uint64, "schedule_steps"},
  schedule_factor = {kinds.number, "schedule_factor"}, least_rate = {kinds.number, "least_rate"},
  plateau_threshold = {kinds.number, "plateau_threshold"}, plateau_patience = {kinds.whole(0, 2 ^ 32 - 2), "plateau_patience"}, seed = {kinds.uint64, "seed"},
  device = {kinds.text, "device"}, data = {kinds.model_bytes, "data"}, external_dir = {kinds.text, "external_dir"},
  cancel = {kinds.object(models.Cancel), "cancel"}, loss_scale = {kinds.number, "loss_scale"}, memory_limit = {kinds.bytes, "memory_limit"},
  prune_share = {kinds.number, "prune_share"}, prune_begin = {kinds.uint64, "prune_begin"}, prune_steps = {kinds.uint64, "prune_steps"},
  replicas = {kinds.texts, "replicas", "replica_count"}, rank = {uint32, "rank"}, rank_count = {uint32, "rank_count"},
  collective_timeout_ms = {uint32, "collective_timeout_ms"}, collective = {kinds.text, "collective"},
  collective_store = {kinds.text, "collective_store"}, bucket_bytes = {kinds.bytes, "bucket_bytes"},
  nesterov = flag(constants.EVN_TRAIN_NESTEROV), centered = flag(constants.EVN_TRAIN_CENTERED),
  check_ranks = flag(constants.EVN_TRAIN_CHECK_RANKS), sync_norm = flag(constants.EVN_TRAIN_SYNC_NORM),
})

local number_out = ffi.new("uint32_t[1]")

-- Reads a model: a file, or with path nil the bytes in options.data.
function Trainer.new(runtime, path, values)
  local filled = fill(values, "options of a trainer")
  if path ~= nil then library.text(path, "the path") end
  local made = Trainer.take(api.trainer_create(runtime, path, filled, out, scratch))
  check(api.trainer_input_count(made.owned.handle, number_out, scratch))
  batch.prepare(made, number_out[0])
  return made
end

-- The place of an input, 1 being the first.
function Trainer.find_input(self, name)
  check(api.trainer_find_input(handle_of(self), library.text(name, "the name"), number_out, scratch))
  return number_out[0] + 1
end

local step_info, evaluation = ffi.new("evn_step_info"), ffi.new("evn_evaluation")

-- Learns from one batch. labels are as the loss says, and nil with the loss "output".
-- Gives {loss, learning_rate, gradient_norm, loss_scale, is_skipped, step}.
function Trainer.step(self, tensors, labels)
  local handle, slots, count = handle_of(self), batch.gather(self, tensors)
  local of_labels = labels ~= nil and Tensor.handle(labels) or nil
  api.step_info_init(step_info, ffi.sizeof(step_info))
  check(api.trainer_step(handle, slots, count, of_labels, step_info, scratch))
  return {loss = step_info.loss, learning_rate = step_info.learning_rate, gradient_norm = step_info.gradient_norm, loss_scale = step_info.loss_scale,
          is_skipped = step_info.skipped ~= 0, step = library.number(step_info.step)}
end

-- Compares the model as it is in use with labels. Gives {loss, correct, count}, and accuracy where the loss has one.
function Trainer.evaluate(self, tensors, labels)
  local handle, slots, count = handle_of(self), batch.gather(self, tensors)
  local of_labels = labels ~= nil and Tensor.handle(labels) or nil
  api.evaluation_init(evaluation, ffi.sizeof(evaluation))
  check(api.trainer_evaluate(handle, slots, count, of_labels, evaluation, scratch))
  local correct, all = library.number(evaluation.correct), library.number(evaluation.count)
  return {loss = evaluation.loss, correct = correct, count = all, accuracy = all ~= 0 and tonumber(correct) / tonumber(all) or nil}
end

-- Tells the schedule "plateau" what is to fall.
function Trainer.note_metric(self, value)
  check(api.trainer_note_metric(handle_of(self), kinds.number(value, "the metric"), scratch))
end

-- Another rate in the place of the options', from the next step on.
function Trainer.set_learning_rate(self, rate)
  check(api.trainer_set_learning_rate(handle_of(self), kinds.number(rate, "the rate"), scratch))
end

local function parts(self, part)
  local handle, made = handle_of(self), {}
  check(api.trainer_parameter_count(handle, number_out, scratch))
  for index = 0, number_out[0] - 1 do
    local name = library.read(function(to, room, size) return api.trainer_parameter_name(handle, index, to, room, size, scratch) end)
    made[name] = Tensor.take(api.trainer_get_parameter(handle, index, part, Tensor.out, scratch))
    Tensor.press(made[name]:info().bytes)
  end
  return made
end

-- Copies of the parameters that learn, by their names.
function Trainer.parameters(self)
  return parts(self, constants.EVN_PARAMETER_VALUE)
end

-- Copies of their gradients in the last step, before clipping.
function Trainer.gradients(self)
  return parts(self, constants.EVN_PARAMETER_GRADIENT)
end

-- Writes all that training needs to go on with the same bits, in one step (safetensors).
function Trainer.save(self, path)
  check(api.trainer_save(handle_of(self), library.text(path, "the path"), scratch))
end

-- Takes what save wrote.
function Trainer.restore(self, path)
  check(api.trainer_restore(handle_of(self), library.text(path, "the path"), scratch))
end

-- The trained model.
function Trainer.finish(self)
  return Model.take(api.trainer_finish(handle_of(self), Model.out, scratch))
end

-- Writes it as an ONNX file, in one step.
function Trainer.export(self, path)
  check(api.trainer_export(handle_of(self), library.text(path, "the path"), scratch))
end

-- What is trained, and how it went.
function Trainer.describe(self, format)
  local handle, number = handle_of(self), library.format(format)
  return library.read(function(to, room, size) return api.trainer_describe(handle, number, to, room, size, scratch) end)
end

return Trainer

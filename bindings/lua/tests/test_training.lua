-- Training: written digits with the numbers of Python, and what is refused. EVENER_TRAINING is a folder that tests/training/make_digits_run.py wrote.
local ffi = require("ffi")
local evener = require("evener")
local common = require("common")
local test, equal, raises = common.test, common.equal, common.raises

local BATCHES, BATCH, HELD, PIXELS = 8, 32, 64, 28 * 28

local function numbers(path, ctype)
  local bytes = common.read(path)
  local made = ffi.new(ctype .. "[?]", #bytes / ffi.sizeof(ctype))
  ffi.copy(made, bytes, #bytes)
  return made
end

local function digits_options()
  return {optimizer = "adamw", learning_rate = 0.002, weight_decay = 0.01, groups = {{names = {"*.b"}, rate_factor = 2, weight_decay = 0}}, frozen = {"conv1.b"},
          schedule = "cosine", schedule_steps = 16, warmup_steps = 2, clip_norm = 1, seed = 7}
end

test("digits are learned with the numbers of Python", function()
  local folder = common.needed("EVENER_TRAINING", "expected.f64"):gsub("/expected%.f64$", "")
  local images, labels = numbers(folder .. "/images.f32", "float"), numbers(folder .. "/labels.i64", "int64_t")
  local expected, network, checkpoint = numbers(folder .. "/expected.f64", "double"), folder .. "/simple_cnn.onnx", os.tmpname()
  equal(ffi.sizeof(labels), 8 * (BATCHES * BATCH + HELD))
  equal(ffi.sizeof(expected), 8 * (BATCHES + 3))
  local rt = common.runtime()
  local function inputs(first, count)
    return {x = rt:tensor("float32", {count, 1, 28, 28}, ffi.string(images + first * PIXELS, count * PIXELS * 4))}
  end
  local function classes(first, count)
    return rt:tensor("int64", {count}, ffi.string(labels + first, count * 8))
  end
  local function train(trainer, first, last)
    for index = first, last - 1 do
      local step = trainer:step(inputs(index * BATCH, BATCH), classes(index * BATCH, BATCH))
      equal(step.loss, expected[index], "the loss of step " .. index)
      equal(step.step, index + 1)
      assert(not step.is_skipped and step.gradient_norm > 0 and step.learning_rate > 0)
    end
  end
  local trainer = rt:trainer(network, digits_options())
  train(trainer, 0, BATCHES / 2)
  trainer:save(checkpoint)
  train(trainer, BATCHES / 2, BATCHES)
  assert(expected[BATCHES - 1] < expected[0])
  local held = inputs(BATCHES * BATCH, HELD)
  local found = trainer:evaluate(held, classes(BATCHES * BATCH, HELD))
  equal({found.loss, found.correct, found.count}, {expected[BATCHES], expected[BATCHES + 1], HELD})
  assert(found.accuracy > 0.5 and found.accuracy == found.correct / HELD)

  -- From its own checkpoint and from Python's it goes on with the same bits.
  local learned = trainer:parameters()
  for _, path in ipairs({checkpoint, folder .. "/state.safetensors"}) do
    local other = rt:trainer(network, digits_options())
    other:restore(path)
    train(other, BATCHES / 2, BATCHES)
    for name, tensor in pairs(other:parameters()) do assert(tensor:bytes() == learned[name]:bytes(), name) end
    other:close()
  end

  trainer:export(checkpoint)
  for _, session in ipairs({rt:session(checkpoint), rt:session(trainer:finish())}) do
    local logits, loss, correct = session:run(held)[1]:view(), 0, 0
    for row = 0, HELD - 1 do
      local label, best, sum = tonumber(labels[BATCHES * BATCH + row]), 0, 0
      for class = 0, 9 do
        sum = sum + math.exp(logits[row * 10 + class])
        if logits[row * 10 + class] > logits[row * 10 + best] then best = class end
      end
      loss = loss + (math.log(sum) - logits[row * 10 + label]) / HELD
      if best == label then correct = correct + 1 end
    end
    logits:close()
    assert(math.abs(loss - found.loss) < 1e-5, loss)
    equal(correct, found.correct)
  end
  os.remove(checkpoint)
end)

local function made(rt, values)
  values = values or {}
  values.data = common.linear()
  return rt:trainer(nil, values)
end

local function batch(rt)
  local data = {}
  for index = 0, 23 do data[index + 1] = index * 5 % 7 / 3 - 1 end
  return {x = rt:tensor("float32", {6, 4}, data)}
end

local function classes(rt, ...)
  return rt:tensor("int64", {select("#", ...)}, {...})
end

local function losses(rt, trainer, steps)
  local inputs, labels, all = batch(rt), classes(rt, 0, 1, 2, 2, 1, 0), {}
  for index = 1, steps do all[index] = trainer:step(inputs, labels).loss end
  return all
end

test("misuse of a trainer is an error and changes nothing", function()
  local rt = common.runtime()
  local trainer, same = made(rt), made(rt)
  local x, y, closed = batch(rt), classes(rt, 0, 1, 2, 2, 1, 0), classes(rt, 0)
  closed:close()
  local function refused(status, inputs, labels)
    raises(status, trainer.step, trainer, inputs, labels)
    raises(status, trainer.evaluate, trainer, inputs, labels)
  end
  refused("EVN_ERROR_INVALID_ARGUMENT", x, classes(rt, 0, 1, 2, 3, 1, 0))
  refused("EVN_ERROR_INVALID_ARGUMENT", x, classes(rt, 0, 1, 2, -1, 1, 0))
  refused("EVN_ERROR_INVALID_ARGUMENT", x, classes(rt, 0, 1, 2))
  refused("EVN_ERROR_INVALID_ARGUMENT", x, rt:tensor("int32", {6}))
  refused("EVN_ERROR_INVALID_ARGUMENT", x, nil)
  refused("EVN_ERROR_INVALID_HANDLE", x, closed)
  refused("EVN_ERROR_INVALID_HANDLE", {x = closed}, y)
  refused("EVN_ERROR_INVALID_ARGUMENT", x, 5)
  refused("EVN_ERROR_INVALID_ARGUMENT", 5, y)
  refused("EVN_ERROR_INVALID_ARGUMENT", {z = x.x}, y)
  refused("EVN_ERROR_INVALID_ARGUMENT", {x.x, x.x}, y)
  refused("EVN_ERROR_INVALID_ARGUMENT", {rt:tensor("float32", {6, 3})}, y)
  refused("EVN_ERROR_INVALID_ARGUMENT", {rt:tensor("float64", {6, 4})}, y)
  assert(not pcall(trainer.step, trainer, {}, y))
  raises("EVN_ERROR_INVALID_ARGUMENT", trainer.set_learning_rate, trainer, 0 / 0)
  raises("EVN_ERROR_INVALID_ARGUMENT", trainer.note_metric, trainer, "low")
  for _, name in ipairs({"save", "restore", "export"}) do
    raises("EVN_ERROR_IO", trainer[name], trainer, "/nowhere/at/all")
    raises("EVN_ERROR_INVALID_ARGUMENT", trainer[name], trainer, "a\0b")
  end
  equal(losses(rt, trainer, 3), losses(rt, same, 3))
  trainer:close()
  trainer:close()
  refused("EVN_ERROR_INVALID_HANDLE", x, y)
  for _, name in ipairs({"finish", "parameters", "gradients", "describe"}) do raises("EVN_ERROR_INVALID_HANDLE", trainer[name], trainer) end
  raises("EVN_ERROR_IO", rt.trainer, rt, "/nowhere.onnx")
end)

test("each choice of a trainer reaches the library", function()
  local rt = common.runtime()
  for _, values in ipairs({
    {nesterov = true}, {output = "none"}, {output = "a\0b"}, {trainable = {"none"}}, {trainable = {}}, {plateau_patience = 2 ^ 32 - 1}, {groups = {{names = {"w"}, rate_factor = -1}}}, {groups = {5}},
    {groups = {{}}}, {schedule = "step"}, {prune_share = 2}, {beta1 = 1}, {beta1 = 0 / 0}, {loss_scale = 0}, {loss = "none"}, {optimizer = "lion"}, {accumulate = -1}, {warmup_steps = 1.5},
    {rank_count = 2 ^ 32}, {reduce = print}, {frozen = "b"}, {seed = "7"}, {centered = 1},
  }) do
    raises("EVN_ERROR_INVALID_ARGUMENT", made, rt, values)
  end
  for _, values in ipairs({{device = "nowhere"}, {replicas = {"nowhere", "cpu"}}, {collective = "nothing"}}) do assert(not pcall(made, rt, values)) end
  local x, y = batch(rt), classes(rt, 0, 1, 2, 2, 1, 0)
  for _, loss in ipairs({"softmax_cross_entropy", "bce_with_logits", "mse", "l1"}) do
    local trainer = made(rt, {loss = loss})
    local labels = loss == "softmax_cross_entropy" and y or rt:tensor("float32", {6, 3})
    local first = trainer:step(x, labels).loss
    assert(trainer:step(x, labels).loss < first, loss)
  end
  for _, optimizer in ipairs({"sgd", "adam", "adamw", "adagrad", "rmsprop"}) do
    local trainer = made(rt, {optimizer = optimizer})
    local all = losses(rt, trainer, 5)
    assert(all[5] < all[1], optimizer)
    common.contains(trainer:describe("json"), '"' .. optimizer .. '"')
  end
  local trainer = made(rt, {schedule = "plateau", plateau_patience = 3, schedule_factor = 0.5, trainable = {"*"}, frozen = {"b"}, precision = "bf16", seed = 2ULL ^ 63})
  trainer:set_learning_rate(0.5)
  local before = trainer:parameters()
  assert(before.w and not before.b)
  equal(trainer:gradients().w:to_table(), {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
  equal(trainer:step(x, y).learning_rate, 0.5)
  local was, is, gradient = before.w:to_table(), trainer:parameters().w:to_table(), trainer:gradients().w:to_table()
  for index = 1, 12 do assert(math.abs(was[index] - 0.5 * gradient[index] - is[index]) < 1e-6) end
  for _ = 1, 5 do trainer:note_metric(1) end
  equal(trainer:step({x.x}, y).learning_rate, 0.25)
end)

test("zero is a value", function()
  local rt = common.runtime()
  local function after(values)
    values.optimizer = "adamw"
    local trainer = made(rt, values)
    losses(rt, trainer, 3)
    trainer:note_metric(1)
    trainer:note_metric(1)
    local rate = trainer:step(batch(rt), classes(rt, 0, 1, 2, 2, 1, 0)).learning_rate
    return trainer:parameters().w:to_table(), rate
  end
  local function is_default(values)
    local default, other = after({}), after(values)
    for index = 1, #default do
      if default[index] ~= other[index] then return false end
    end
    return true
  end
  for _, same in ipairs({{}, {learning_rate = 1e-3, weight_decay = 0.01, beta1 = 0.9}, {groups = {{names = {"*"}}}}}) do assert(is_default(same)) end
  for _, other in ipairs({{learning_rate = 0}, {weight_decay = 0}, {beta1 = 0}, {groups = {{names = {"*"}, weight_decay = 0}}}}) do assert(not is_default(other)) end
  local _, rate = after({schedule = "plateau", plateau_patience = 0})
  assert(math.abs(rate - 1e-4) < 1e-12)
end)

test("a token ends a trainer's calls", function()
  local rt, token = common.runtime(), evener.cancel()
  local trainer = made(rt, {cancel = token})
  losses(rt, trainer, 1)
  token:cancel()
  raises("EVN_ERROR_CANCELLED", trainer.step, trainer, batch(rt), classes(rt, 0, 1, 2, 2, 1, 0))
  raises("EVN_ERROR_CANCELLED", trainer.evaluate, trainer, batch(rt), classes(rt, 0, 1, 2, 2, 1, 0))
  assert(trainer:parameters().w)
end)

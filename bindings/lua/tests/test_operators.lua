-- Custom operators in Lua.
local common = require("common")
local evener = require("evener")
local test, equal, raises, contains = common.test, common.equal, common.raises, common.contains

local function twice(domain)
  return {
    domain = domain or "mine", name = "Twice",
    infer = function(_, inputs) return {{dtype = inputs[1].dtype, dims = inputs[1].dims}} end,
    run = function(_, inputs, outputs)
      local from, to = inputs[1].values, outputs[1].values
      for index = 0, #from - 1 do to[index] = 2 * from[index] end
    end,
  }
end

-- A model of one node of the operator, with an attribute of each kind.
local function model(op)
  return common.custom_model(op or "Twice")
end

local function run(session, runtime, ...)
  local outputs = session:run({common.vector(runtime, ...)})
  local list = outputs[1]:to_table()
  outputs[1]:close()
  return list
end

test("an operator runs among others", function()
  local runtime = common.runtime()
  runtime:register_operator(twice())
  local session = common.session(runtime, model())
  equal(run(session, runtime, 1, -2, 3), {2, -4, 6})
  equal(run(session, runtime, 4), {8})
  contains(session:explain(), "Twice")
end)

test("compiled loops go on running operators", function()
  local runtime = common.runtime()
  local plain = common.session(runtime, common.double())
  local x, y = common.vector(runtime, 1, 2), common.vector(runtime, 0, 0)
  for _ = 1, 300 do plain:run_into({x}, {y}) end -- compiled by now
  runtime:register_operator(twice())
  local session = common.session(runtime, model())
  for _ = 1, 300 do session:run_into({x}, {y}) end
  equal(y:to_table(), {2, 4})
end)

test("nodes have names and attributes", function()
  local runtime, seen = common.runtime(), {}
  local op = twice()
  op.run = function(node, _, outputs)
    seen = {name = node:name(), count = node:attribute("count"), scale = node:attribute("scale"), label = node:attribute("label"),
            axes = node:attribute("axes"), rates = node:attribute("rates"), words = node:attribute("words"), none = node:attribute("none", "nothing")}
    local table_of = node:attribute("table")
    seen.table = {table_of.dtype, table_of.dims, table_of.values[0], table_of.values[1]}
    seen.node, seen.view = node, outputs[1].values
    outputs[1].values:set({7})
  end
  runtime:register_operator(op)
  equal(run(common.session(runtime, model()), runtime, 1), {7})
  local node, view = seen.node, seen.view
  seen.node, seen.view = nil, nil
  equal(seen, {name = "the_Twice", count = 3, scale = 0.5, label = "a label", axes = {1, -2}, rates = {0.25, 4}, words = {"one", "two"},
               none = "nothing", table = {"float32", {2}, 1.5, 2.5}})
  contains(raises("EVN_ERROR_INVALID_HANDLE", node.name, node).message, "behind the end")
  raises("EVN_ERROR_INVALID_HANDLE", function() return view[0] end)
  raises("EVN_ERROR_INVALID_HANDLE", view.pointer, view)
end)

test("what a function raises is the run's error", function()
  local runtime = common.runtime()
  local op, answer = twice(), nil
  op.infer = function(_, inputs) return answer or {{dtype = inputs[1].dtype, dims = inputs[1].dims}} end
  op.run = function() error("no such luck") end
  runtime:register_operator(op)
  local session = common.session(runtime, model())
  local problem = raises("EVN_ERROR_INTERNAL", run, session, runtime, 1)
  contains(problem.message, "mine::Twice", "no such luck")
  equal(problem.node, "the_Twice")
  for _, wrong in ipairs({{}, {7}, {{dtype = "nothing"}}, {{dtype = "float32", dims = {1, 1, 1, 1, 1, 1, 1, 1, 1}}}, {{dtype = "float32", dims = {-2}}}, 7}) do
    answer = wrong
    contains(raises("EVN_ERROR_INVALID_MODEL", common.session, runtime, model()).message, "mine::Twice", "infer failed")
  end
end)

test("an error without a text or a status is an internal error", function()
  local runtime = common.runtime()
  local op, raised = twice(), nil
  op.run = function() error(raised) end
  runtime:register_operator(op)
  local session = common.session(runtime, model())
  local broken = setmetatable({}, {__tostring = function() error("no text") end})
  local no_text = setmetatable({}, {__tostring = function() return {} end})
  for _, each in ipairs({broken, no_text, setmetatable({status = "EVN_ERROR_IO"}, evener.Error)}) do
    raised = each
    contains(raises("EVN_ERROR_INTERNAL", run, session, runtime, 1).message, "a table was raised")
  end
  for _, status in ipairs({"EVN_OK", "EVN_MAX_RANK", 0}) do
    raised = setmetatable({status = status, message = "no status"}, evener.Error)
    contains(raises("EVN_ERROR_INTERNAL", run, session, runtime, 1).message, "no status")
  end
  raised = setmetatable({status = "EVN_ERROR_IO", message = "no disk"}, evener.Error)
  contains(raises("EVN_ERROR_IO", run, session, runtime, 1).message, "no disk")
end)

test("views check every access", function()
  local runtime = common.runtime()
  local op, access = twice(), nil
  op.run = function(_, inputs, outputs) access(inputs[1].values, outputs[1].values) end
  runtime:register_operator(op)
  local session = common.session(runtime, model())
  access = function(from) from[0] = 1 end
  contains(raises("EVN_ERROR_WRONG_STATE", run, session, runtime, 1).message, "for reading")
  access = function(from) return from[1] end
  contains(raises("EVN_ERROR_INVALID_ARGUMENT", run, session, runtime, 1).message, "no element 1")
  access = function(_, to) to[-1] = 1 end
  raises("EVN_ERROR_INVALID_ARGUMENT", run, session, runtime, 1)
  access = function(from, to) to:set(from:bytes()) collectgarbage() end
  equal(run(session, runtime, 1.5, 2.5), {1.5, 2.5})
end)

test("a model with such an operator cannot be submitted", function()
  local runtime = common.runtime()
  runtime:register_operator(twice())
  local session = common.session(runtime, model())
  local problem = raises("EVN_ERROR_UNSUPPORTED", session.submit, session, {common.vector(runtime, 1)})
  contains(problem.message, "mine::Twice", "caller's thread")
  equal(problem.node, "the_Twice")
end)

test("operators that are wrong are errors", function()
  local runtime = common.runtime()
  for _, change in ipairs({{domain = "ai.onnx"}, {domain = ""}, {domain = 7}, {name = "a\0b"}, {infer = 7}, {inputs = "many"}, {inputs = {3, 2}}, {outputs = 0},
                           {since_version = 0}, {value_inputs = {33}}, {other = 1}}) do
    local op = twice()
    for name, value in pairs(change) do op[name] = value end
    raises("EVN_ERROR_INVALID_ARGUMENT", runtime.register_operator, runtime, op)
  end
  raises("EVN_ERROR_INVALID_ARGUMENT", runtime.register_operator, runtime, "Twice")
  runtime:register_operator(twice())
  raises("EVN_ERROR_INVALID_ARGUMENT", runtime.register_operator, runtime, twice()) -- there is one
end)

test("operators live as long as their runtime's objects", function()
  local runtime = common.runtime()
  runtime:register_operator(twice())
  local session = common.session(runtime, model())
  local x, y = common.vector(runtime, 1), common.vector(runtime, 0)
  runtime:close()
  for _ = 1, 50 do
    collectgarbage()
    session:run_into({x}, {y})
  end
  equal(y:to_table(), {2})
end)

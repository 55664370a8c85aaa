-- Evener for LuaJIT: runs ONNX models on CPU and OpenCL devices. EVENER_LIBRARY names the library, else the system's loader finds it.
local library = require("evener.library")
local Value = require("evener.value")
local models = require("evener.model")

return {
  Runtime = require("evener.runtime"), Device = require("evener.device"), Tensor = require("evener.tensor"), Model = models.Model,
  Cancel = models.Cancel, Session = require("evener.session"), Request = require("evener.request"), State = require("evener.state"),
  Quantizer = require("evener.quantizer"), Trainer = require("evener.trainer"), Value = Value, Error = library.Error,
  runtime = require("evener.runtime").new, cancel = models.Cancel.new,
  now = library.now, version = library.version, passes = library.passes, constants = library.constants,
}

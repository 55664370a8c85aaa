-- Runs all tests: luajit run.lua, with EVENER_LIBRARY, EVENER_MODELS, EVENER_OCR and EVENER_TRAINING (see scripts/test_lua).
local here = arg[0]:match("^(.*)/[^/]*$") or "."
package.path = here .. "/../?.lua;" .. here .. "/?.lua;" .. package.path
for _, name in ipairs(#arg > 0 and arg or {"library", "tensors", "runs", "requests", "runtimes", "ocr", "training", "steady", "operators"}) do
  dofile(here .. "/test_" .. name .. ".lua")
end
require("common").finish()

-- A real recognizer reads the lines of a real page as Python's program does. EVENER_OCR is a folder that make_ocr_lines.py wrote.
local evener = require("evener")
local common = require("common")

-- The text by the greedy rule of CTC: the largest class of each step, 0 is the blank, repeated ones count once.
local function decode(tensor, alphabet)
  local dims = tensor:info().dims
  local steps, classes = dims[2], dims[3]
  common.equal(classes, #alphabet + 1)
  local view, text, last = tensor:view(), {}, 0
  for step = 0, steps - 1 do
    local best = 0
    for class = 1, classes - 1 do
      if view[step * classes + class] > view[step * classes + best] then best = class end
    end
    if best ~= 0 and best ~= last then text[#text + 1] = alphabet[best] end
    last = best
  end
  view:close()
  return table.concat(text)
end

common.test("the recognizer reads what Python reads, alone and as 16 requests", function()
  local texts = common.needed("EVENER_OCR", "texts.txt")
  local path = common.needed("EVENER_MODELS", "ch_PP-OCRv4_rec_infer.onnx")
  local rt = common.runtime()
  local model = rt:load(path)
  local alphabet = {}
  for character in (model:metadata("character") .. "\n"):gmatch("(.-)\n") do alphabet[#alphabet + 1] = character end
  alphabet[#alphabet + 1] = " "
  local session = rt:session(model)
  local lines = {}
  for text in common.read(texts):gmatch("([^\n]*)\n") do
    local bytes = common.read(texts:gsub("texts%.txt$", "line" .. #lines .. ".f32"))
    lines[#lines + 1] = {text = text, tensor = rt:tensor("float32", {1, 3, 48, #bytes / (3 * 48 * 4)}, bytes)}
  end
  assert(#lines >= 2)
  for _, line in ipairs(lines) do
    assert(#line.text > 3)
    common.equal(decode(session:run({line.tensor})[1], alphabet), line.text)
  end
  local requests = {}
  for number = 1, 16 do
    requests[number] = session:submit({lines[number % #lines + 1].tensor}, {deadline = evener.now() + 600})
  end
  for number, request in ipairs(requests) do
    request:wait()
    common.equal(decode(request:take()[1], alphabet), lines[number % #lines + 1].text)
    request:close()
  end
end)

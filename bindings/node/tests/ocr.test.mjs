// A real recognizer reads the lines of a real page as Python's program does: EVENER_OCR is a folder that
// bindings/rust/evener/tests/make_ocr_lines.py wrote.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import test from 'node:test';

import {evener, needed, newRuntime} from './common.mjs';

// The text by the greedy rule of CTC: the largest class of each step, 0 is the blank, repeated ones count once.
function decode(probabilities, alphabet) {
  let text = '';
  for (let begin = 0, last = 0; begin < probabilities.length; begin += alphabet.length) {
    let best = 0;
    for (let i = 1; i < alphabet.length; i++) if (probabilities[begin + i] > probabilities[begin + best]) best = i;
    if (best !== 0 && best !== last) text += alphabet[best];
    last = best;
  }
  return text;
}

test('the recognizer reads what Python reads', async (t) => {
  const file = needed(t, 'EVENER_OCR', 'texts.txt');
  const recognizer = file && needed(t, 'EVENER_MODELS', 'ch_PP-OCRv4_rec_infer.onnx');
  if (!recognizer) return;
  const runtime = newRuntime(t);
  const model = await runtime.loadModel(recognizer);
  const alphabet = ['', ...model.metadata('character').split('\n'), ' '];
  const session = await runtime.createSession(model);
  const texts = fs.readFileSync(file, 'utf8').trimEnd().split('\n');
  assert.ok(texts.length >= 2 && texts.every((text) => text.length >= 3));
  const lines = texts.map((_, i) => {
    const bytes = fs.readFileSync(path.join(path.dirname(file), `line${i}.f32`));
    const data = new Float32Array(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length));
    return runtime.wrap(data, [1, 3, 48, data.length / (3 * 48)]);
  });
  const read = (output) => {
    assert.equal(output.dims.at(-1), alphabet.length);
    return decode(output.data, alphabet);
  };
  for (const [i, line] of lines.entries()) assert.equal(read(session.run([line])[0]), texts[i]);
  // And so do 16 requests at a time.
  const requests = Array.from({length: 16}, (_, i) => session.submit([lines[i % lines.length]], {timeout: 600000, priority: i % 4}));
  for (const [i, [output]] of (await Promise.all(requests)).entries()) assert.equal(read(output), texts[i % texts.length]);
  assert.ok(evener.version());
});

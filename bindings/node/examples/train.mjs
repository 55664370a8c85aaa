// Trains a network on written digits, and runs what it has become.
//
// usage: node train.mjs FOLDER TRAINED.onnx   (FOLDER: what tests/training/make_digits_run.py has written, a network and pictures of 28 x 28 with
// their classes, as plain numbers)
import fs from 'node:fs';
import path from 'node:path';
import {Runtime} from 'evener';

const BATCH = 32, PIXELS = 28 * 28;

const [folder, trained] = process.argv.slice(2);
if (trained === undefined) {
  console.error('usage: node train.mjs FOLDER TRAINED.onnx');
  process.exit(2);
}
const read = (name, Kind) => new Kind(new Uint8Array(fs.readFileSync(path.join(folder, name))).buffer);
const images = read('images.f32', Float32Array), labels = read('labels.i64', BigInt64Array);
const held = labels.length - BATCH; // the last pictures are not learned

const interrupted = new AbortController();
process.once('SIGINT', () => interrupted.abort()); // Ctrl-C ends the training
const runtime = new Runtime();
const trainer = await runtime.trainer(path.join(folder, 'simple_cnn.onnx'), {optimizer: 'adamw', learningRate: 0.002, signal: interrupted.signal});

// What a function gives for a batch.
async function batch(first, use) {
  const x = runtime.tensor(images.subarray(first * PIXELS, (first + BATCH) * PIXELS), [BATCH, 1, 28, 28]);
  const classes = runtime.tensor(labels.subarray(first, first + BATCH));
  try {
    return await use({x}, classes);
  } finally {
    x.close();
    classes.close();
  }
}

for (let epoch = 1; epoch <= 4; epoch++) {
  let step;
  for (let first = 0; first + BATCH <= held; first += BATCH) step = await batch(first, (inputs, classes) => trainer.step(inputs, classes));
  const found = await batch(held, (inputs, classes) => trainer.evaluate(inputs, classes));
  console.log(`epoch ${epoch}: loss ${step.loss.toFixed(4)}, ${found.correct} of ${found.count} read rightly`);
}

await trainer.export(trained); // an ONNX file, for any engine
const session = await runtime.createSession(trained);
await batch(held, ({x}) => {
  const [scores] = session.run([x]);
  const first = scores.data.subarray(0, 10);
  console.log(`the first of them is a ${labels[held]}: it was read as ${first.indexOf(Math.max(...first))}`);
  scores.close();
});
session.close();
trainer.close();
runtime.close();

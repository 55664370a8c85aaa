// What steady.test.mjs runs in a process of its own: prints how much more memory there is after many calls than after some.
//
// usage: node --expose-gc steady.mjs good | bad
import assert from 'node:assert/strict';

import {collect, double, evener, resident} from './common.mjs';

const runtime = new evener.Runtime({threadCount: 1, cacheDir: ''});
const session = runtime.createSessionSync(runtime.loadModelSync(double()));
const cpu = runtime.device('cpu');
const x = runtime.tensor([1, 2, 3]);
const y = runtime.zeros('float32', [3]);
const inputs = [x];
const outputs = [y];
const wrong = [runtime.tensor(Int32Array.of(1))];

// A run, and five calls more in every tenth. A promise only where there is something to wait for.
function good(i) {
  session.runInto(inputs, outputs);
  if (y.data[2] !== 6) throw new Error('a wrong sum');
  if (i % 10 === 0) {
    session.run(inputs)[0].close();
    session.runInto({x}, {y}, {timeout: 60000});
    runtime.wrap(new Float32Array(3)).close();
    session.run({x}); // and one that is left to the collector
  }
  return i % 500 === 0 ? submitted() : null;
}

async function submitted() {
  (await session.submit(inputs))[0].close();
  await new Promise((resolve) => setImmediate(resolve));
}

function bad(i) {
  assert.throws(() => session.run(wrong));
  assert.throws(() => runtime.wrap(new Float32Array(3), [4]));
  assert.throws(() => runtime.zeros('float32', [-1]));
  return i % 100 === 0 ? refused() : null;
}

async function refused() {
  await assert.rejects(session.submit(wrong));
  await assert.rejects(runtime.loadModel(Buffer.from('nothing')));
}

async function calls(one, count) {
  for (let i = 1; i <= count; i++) {
    const done = one(i);
    if (done !== null) await done;
    if (i % 50000 === 0) await collect(1); // V8 lets many tensors pile up that are this small
  }
  await collect(5);
}

const [one, few, many] = process.argv[2] === 'bad' ? [bad, 10000, 20000] : [good, 200000, 700000];
await calls(one, few);
const before = {process: resident(), heap: process.memoryUsage().heapUsed, device: cpu.memoryStats().current};
await calls(one, many);
console.log(JSON.stringify({process: resident() - before.process, heap: process.memoryUsage().heapUsed - before.heap, device: cpu.memoryStats().current - before.device}));

// Worker threads: each has an instance of its own, and may end at any time.
import assert from 'node:assert/strict';
import {spawnSync} from 'node:child_process';
import path from 'node:path';
import test from 'node:test';
import {Worker} from 'node:worker_threads';

import {TESTS} from './common.mjs';

const COMMON = path.join(TESTS, 'common.mjs');

// Runs the body of a module in a worker: {worker, ended}.
function start(body) {
  const text = `import('node:worker_threads').then(async ({parentPort}) => {
    const {evener, double, slow} = await import(${JSON.stringify(COMMON)});
    const make = (bytes) => {
      const runtime = new evener.Runtime({threadCount: 2, cacheDir: '', logLevel: 'debug', log: () => {}});
      return {runtime, session: runtime.createSessionSync(runtime.loadModelSync(bytes))};
    };
    ${body}
  });`;
  const worker = new Worker(text, {eval: true});
  const ended = new Promise((resolve, reject) => {
    worker.on('error', reject);
    worker.on('exit', resolve);
  });
  ended.catch(() => {});
  const said = Promise.race([new Promise((resolve) => worker.once('message', resolve)), ended]);
  said.catch(() => {});
  return {worker, ended, said};
}

test('four workers run at a time', async () => {
  const workers = Array.from({length: 4}, (_, i) => start(`
    const {runtime, session} = make(double());
    const made = await Promise.all(Array.from({length: 20}, (_, k) => session.submit([runtime.wrap(Float32Array.of(${i}, k))])));
    parentPort.postMessage(made.map(([y]) => [...y.data]));`));
  const said = await Promise.all(workers.map(({said: each}) => each));
  assert.deepEqual(await Promise.all(workers.map(({ended}) => ended)), [0, 0, 0, 0]);
  said.forEach((made, i) => assert.deepEqual(made, Array.from({length: 20}, (_, k) => [2 * i, 2 * k])));
});

test('a worker that is ended with requests in flight is clean', async () => {
  for (let round = 0; round < 5; round++) {
    const {worker, ended, said} = start(`
      const {runtime, session} = make(slow(5000));
      for (let i = 0; i < 6; i++) session.submit([runtime.wrap(new Float32Array(256 * 256), [256, 256])]).catch(() => {});
      runtime.createSession(slow(3000)).catch(() => {});
      parentPort.postMessage('begun');`);
    assert.equal(await said, 'begun');
    if (round % 2) await new Promise((resolve) => setTimeout(resolve, 10));
    await worker.terminate();
    await ended;
  }
});

test('workers that are ended at any time, with everything under way', async () => {
  for (let round = 0; round < 25; round++) {
    const {worker, ended, said} = start(`
      const {runtime, session} = make(slow(300));
      const small = runtime.createSessionSync(runtime.loadModelSync(double()));
      parentPort.postMessage('begun');
      for (let i = 0; i < 4; i++) session.submit([runtime.wrap(new Float32Array(64 * 64), [64, 64])]).catch(() => {});
      runtime.createSession(slow(300)).catch(() => {});
      const model = runtime.loadModelSync(slow(300));
      runtime.createSession(model).catch(() => {});
      model.close();
      for (;;) {
        const [y] = await small.submit([runtime.wrap(new Float32Array(100))]);
        y.data[0] = 1;
      }`);
    assert.equal(await said, 'begun');
    await new Promise((resolve) => setTimeout(resolve, Math.random() * 40));
    await worker.terminate();
    await ended;
  }
});

test('a worker that returns waits for its requests', async () => {
  const {ended, said} = start(`
    const {runtime, session} = make(slow(50));
    session.submit([runtime.zeros('float32', [64, 64])]).then(([y]) => parentPort.postMessage(y.dims));`);
  assert.deepEqual(await said, [64, 64]);
  assert.equal(await ended, 0);
});

test('a process that exits with requests in flight is clean', () => {
  const text = `import(${JSON.stringify(COMMON)}).then(({evener, slow}) => {
    const runtime = new evener.Runtime({threadCount: 2, cacheDir: ''});
    const session = runtime.createSessionSync(runtime.loadModelSync(slow(5000)));
    for (let i = 0; i < 4; i++) session.submit([runtime.wrap(new Float32Array(256 * 256), [256, 256])]).catch(() => {});
    globalThis.data = runtime.zeros('float32', [1000]).data;
    setTimeout(() => process.exit(7), 20);
  });`;
  const done = spawnSync(process.execPath, ['-e', text], {encoding: 'utf8'});
  assert.equal(done.status, 7, done.stderr);
  assert.equal(done.stderr, '');
});

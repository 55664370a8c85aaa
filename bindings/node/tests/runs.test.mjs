// Runs and requests.
import assert from 'node:assert/strict';
import {spawnSync} from 'node:child_process';
import path from 'node:path';
import test from 'node:test';

import {collect, double, evener, fails, newRuntime, newSession, runningSum, scale, sequence, slow, TESTS, twoOutputs} from './common.mjs';

// Inputs with which `slow` computes for a while: it ends when it is asked to.
const COUNT = 2000;
const large = (runtime) => runtime.zeros('float32', [256, 256]);

test('a run takes tensors by place and by name, and gives both', (t) => {
  const runtime = newRuntime(t);
  const session = newSession(t, runtime, twoOutputs());
  assert.deepEqual(session.inputs(), [{name: 'x', dtype: 'float32', dims: [-1], symbols: ['n'], type: 'tensor(float32)'}]);
  assert.deepEqual(session.outputs().map((each) => each.name), ['sum', 'minus']);
  const x = runtime.tensor([1, 2]);
  const [sum, minus] = session.run([x]);
  assert.deepEqual([sum.read(), minus.read()], [Float32Array.of(2, 4), Float32Array.of(-1, -2)]);
  const named = session.run({x}, {timeout: 60000, priority: 3, randomSeed: 7, allowCopies: true});
  assert.deepEqual(Object.keys(named), ['sum', 'minus']);
  assert.deepEqual(named.minus.read(), Float32Array.of(-1, -2));
  // Outputs that are not wanted are not made.
  const one = session.run({x}, {outputs: ['minus']});
  assert.deepEqual(Object.keys(one), ['minus']);
  assert.equal(session.run([x], {outputs: ['minus']})[0], null);
});

test('an input with a default is given in each kind of run, or left out', async (t) => {
  const runtime = newRuntime(t);
  const session = newSession(t, runtime, scale(), {overridable: ['b']});
  assert.deepEqual(session.inputs().map((each) => each.name), ['x']);
  assert.deepEqual(session.defaults().map((each) => [each.name, each.dims]), [['k', []], ['b', []]]);
  const x = runtime.tensor([1, 2]), k = runtime.wrap(Float32Array.of(5), []), b = runtime.wrap(Float32Array.of(3), []), y = runtime.zeros('float32', [2]);
  const cases = [[{x}, [x], [3, 5]], [{x, k}, [x, k], [6, 11]], [{x, b}, [x, null, b], [5, 7]], [{x, k, b}, [x, k, b], [8, 13]]];
  for (const [named, listed, wanted] of [...cases, ...cases]) {
    const expected = Float32Array.from(wanted);
    assert.deepEqual(session.run(named).y.read(), expected);
    assert.deepEqual(session.run(listed)[0].read(), expected);
    session.runInto(named, {y});
    assert.deepEqual(y.read(), expected);
    assert.deepEqual((await session.submit(named)).y.read(), expected);
    const values = Object.fromEntries(Object.entries(named).map(([name, each]) => [name, evener.Value.fromTensor(each)]));
    assert.deepEqual(session.runValues(values).y.tensor().read(), expected);
  }
  await fails('INVALID_ARGUMENT', () => session.run({k}), /no tensor for the input x/);
});

test('outputs that there are are written', async (t) => {
  const runtime = newRuntime(t);
  const session = newSession(t, runtime, twoOutputs());
  const x = runtime.wrap(Float32Array.of(1, 2));
  const outputs = [runtime.zeros('float32', [2]), runtime.wrap(new Float32Array(2))];
  session.runInto([x], outputs);
  assert.deepEqual(outputs.map((each) => each.read()), [Float32Array.of(2, 4), Float32Array.of(-1, -2)]);
  x.data[0] = 10;
  session.runInto({x}, {sum: outputs[0], minus: outputs[1]}, {timeout: 60000});
  assert.deepEqual(outputs[1].data, Float32Array.of(-10, -2));
  await fails('INVALID_ARGUMENT', () => session.runInto([x], [outputs[0], null]), /no tensor for the output minus/);
  await fails('INVALID_ARGUMENT', () => session.runInto([x], [outputs[0]]));
  const into = [runtime.zeros('float32', [2]), null];
  const made = await session.submit([x], {into});
  assert.equal(made[0], into[0]);
  assert.deepEqual([made[0].read(), made[1].read()], [Float32Array.of(20, 4), Float32Array.of(-10, -2)]);
});

test('inputs that do not fit are errors that name them', async (t) => {
  const runtime = newRuntime(t);
  const session = newSession(t, runtime, double());
  const integers = runtime.tensor(Int32Array.of(1));
  const square = runtime.zeros('float32', [1, 1]);
  for (const run of [(inputs) => session.run(inputs), (inputs) => session.submit(inputs)]) {
    await fails('INVALID_ARGUMENT', () => run([integers]), /x.*float32|float32.*x/);
    await fails('INVALID_ARGUMENT', () => run([square]), /x/);
    await fails('INVALID_ARGUMENT', () => run([]));
    await fails('INVALID_ARGUMENT', () => run({}));
    await fails('INVALID_ARGUMENT', () => run({z: integers}), /z.*x|x.*z/);
  }
  assert.throws(() => session.run([5]), /a Tensor is wanted/);
  assert.throws(() => session.run(integers), TypeError);
  assert.throws(() => session.run([session]), /a Tensor is wanted/);
  await fails('INVALID_ARGUMENT', () => session.run(new Array(5000).fill(integers)));
});

test('values', async (t) => {
  const runtime = newRuntime(t);
  const session = newSession(t, runtime, sequence());
  const [x, z] = [runtime.tensor([1, 2]), runtime.tensor([3])];
  const values = [x, z].map((each) => evener.Value.fromTensor(each));
  for (const made of [session.runValues({x: values[0], z: values[1]}), await session.submitValues({x: values[0], z: values[1]})]) {
    assert.equal(made.s.type, 'seq(tensor(float32))');
    assert.deepEqual(made.s.parts().map((part) => part.tensor().read()), [Float32Array.of(1, 2), Float32Array.of(3)]);
  }
  const map = runtime.value('map(int64,tensor(float32))', [BigInt64Array.of(5n, 6n), Float32Array.of(1, 2)].map((each) => evener.Value.fromTensor(runtime.tensor(each))));
  assert.deepEqual(map.parts()[0].tensor().read(), BigInt64Array.of(5n, 6n));
  await fails('INVALID_ARGUMENT', () => map.tensor());
  await fails('INVALID_ARGUMENT', () => runtime.value('seq(tensor(int64))', values));
});

test('16 requests at a time, with deadlines', async (t) => {
  const runtime = newRuntime(t);
  const session = newSession(t, runtime, double());
  const requests = Array.from({length: 16}, (_, i) => session.submit([runtime.tensor([i])], {deadline: process.hrtime.bigint() + 60_000_000_000n, priority: i % 3}));
  assert.deepEqual((await Promise.all(requests)).map(([y]) => y.data[0]), requests.map((_, i) => 2 * i));
  assert.ok(requests.every((request) => request.done));
  await fails('TIMEOUT', session.submit([runtime.tensor([1])], {deadline: 1n}));
  await fails('TIMEOUT', () => session.run([runtime.tensor([1])], {deadline: 1n}));
  const busy = newSession(t, runtime, slow(COUNT));
  await fails('TIMEOUT', busy.submit([large(runtime)], {timeout: 5}));
  await fails('TIMEOUT', () => busy.run([large(runtime)], {timeout: 5}));
});

test('a signal ends a request, and its reason is the cause', async (t) => {
  const runtime = newRuntime(t);
  const session = newSession(t, runtime, slow(COUNT));
  const controller = new AbortController();
  const request = session.submit([large(runtime)], {signal: controller.signal});
  controller.abort(new Error('enough'));
  assert.equal((await fails('CANCELLED', request)).cause.message, 'enough');
  assert.equal((await fails('CANCELLED', session.submit([large(runtime)], {signal: controller.signal}))).cause.message, 'enough');
  const other = session.submit([large(runtime)]);
  other.cancel();
  await fails('CANCELLED', other);
  other.cancel();
  const model = runtime.loadModelSync(double());
  await fails('CANCELLED', runtime.createSession(model, {signal: AbortSignal.abort()}));
  await fails('CANCELLED', runtime.loadModel(double(), {signal: AbortSignal.abort()}));
  await fails('TIMEOUT', runtime.loadModel(double(), {deadline: 1n}));
});

test('one signal ends many requests, and has one listener', async (t) => {
  const warnings = [];
  const warn = (warning) => warnings.push(warning);
  process.on('warning', warn);
  const runtime = newRuntime(t);
  const session = newSession(t, runtime, slow(COUNT));
  const controller = new AbortController();
  const requests = Array.from({length: 30}, () => session.submit([large(runtime)], {signal: controller.signal}));
  await new Promise((resolve) => setImmediate(resolve));
  controller.abort();
  for (const end of await Promise.allSettled(requests)) assert.equal(end.reason?.status, 'EVN_ERROR_CANCELLED');
  process.removeListener('warning', warn);
  assert.deepEqual(warnings, []);
});

test('closing during a run lets it end', async (t) => {
  const runtime = newRuntime(t);
  const session = newSession(t, runtime, slow(200));
  const x = large(runtime);
  const requests = [session.submit([x]), session.submit([x])];
  x.close();
  session.close();
  runtime.close();
  for (const [y] of await Promise.all(requests)) assert.deepEqual(y.dims, [256, 256]);
  await fails('INVALID_HANDLE', () => session.submit([x]));
});

test('tensors live as long as the requests that have them', async (t) => {
  const runtime = newRuntime(t);
  const session = newSession(t, runtime, slow(100));
  const double_ = newSession(t, runtime, double());
  const blocked = Array.from({length: 4}, () => session.submit([large(runtime)]));
  const requests = [];
  for (let i = 0; i < 50; i++) requests.push(double_.submit([runtime.wrap(new Float32Array(1000).fill(i))]));
  await collect();
  for (let i = 0; i < 50; i++) new Float32Array(1000).fill(-1);
  for (const [i, [y]] of (await Promise.all(requests)).entries()) assert.ok(y.read().every((each) => each === 2 * i));
  await Promise.all(blocked);
});

test('nothing is lost where everything is collected at every step', async (t) => {
  for (let i = 0; i < 20; i++) {
    const request = (() => {
      const runtime = new evener.Runtime({threadCount: 1, cacheDir: ''});
      const session = runtime.createSessionSync(runtime.loadModelSync(double()));
      globalThis.gc();
      return session.submit({x: runtime.wrap(Float32Array.of(i, i + 1))});
    })();
    await collect(1);
    const {y} = await request;
    await collect(1);
    const data = y.data;
    await collect(1);
    y.close();
    await collect(1);
    assert.deepEqual(data, Float32Array.of(2 * i, 2 * i + 2));
  }
  t.diagnostic('20 rounds');
});

test('a stream gives outputs in order, and is left at any time', async (t) => {
  const runtime = newRuntime(t);
  const session = newSession(t, runtime, double());
  const numbers = function* () { for (let i = 0; i < 40; i++) yield {x: runtime.tensor([i])}; };
  const got = [];
  for await (const {y} of session.stream(numbers(), {concurrency: 5, timeout: 60000})) got.push(y.data[0]);
  assert.deepEqual(got, Array.from({length: 40}, (_, i) => 2 * i));
  let ended = false;
  const endless = async function* () {
    try {
      for (let i = 0; ; i++) yield [runtime.tensor([i])];
    } finally {
      ended = true;
    }
  };
  for await (const [y] of session.stream(endless())) if (y.data[0] >= 20) break;
  assert.equal(ended, true);
  await fails('INVALID_ARGUMENT', async () => {
    for await (const [y] of session.stream([[runtime.tensor([1])], [runtime.tensor(Int32Array.of(1))], [runtime.tensor([3])]])) assert.equal(y.data[0], 2);
  });
  await assert.rejects(session.stream([], {concurrency: 0}).next(), TypeError);
});

test('a request that fails and that nobody looks at is told as any promise is', async (t) => {
  const text = `import(${JSON.stringify(path.join(TESTS, 'common.mjs'))}).then(({evener, double}) => {
    const runtime = new evener.Runtime({threadCount: 1, cacheDir: ''});
    runtime.createSessionSync(runtime.loadModelSync(double())).submit([]);
  });`;
  const done = spawnSync(process.execPath, ['-e', text], {encoding: 'utf8'});
  assert.equal(done.status, 1);
  assert.match(done.stderr, /EvenerError: the model has 1 inputs/);
  const session = newSession(t, newRuntime(t), double());
  session.close();
  const late = session.submit([]);
  await fails('INVALID_HANDLE', late, /the Session is closed/);
  assert.equal(late.done, true);
});

test('states', async (t) => {
  const runtime = newRuntime(t);
  const session = newSession(t, runtime, runningSum());
  const state = session.state([{output: 'total', input: 'sum'}]);
  const step = (of, values) => session.run({x: runtime.tensor(values)}, {state: of}).y.read();
  assert.deepEqual(step(state, [1, 2]), Float32Array.of(-1, -2));
  const saved = state.save();
  const fork = state.fork();
  assert.deepEqual(step(state, [1, 2]), Float32Array.of(-2, -4));
  assert.deepEqual((await session.submit({x: runtime.tensor([5, 5])}, {state: fork})).y.read(), Float32Array.of(-6, -7));
  state.restore(saved);
  assert.deepEqual(step(state, [0, 0]), Float32Array.of(-1, -2));
  state.reset();
  assert.deepEqual(step(state, [0, 0]).map(Math.abs), Float32Array.of(0, 0));
  assert.equal(state.length(), 0);
  state.truncate(0);
  assert.match(state.describe('json'), /double_buffered|tensor/);
  await fails('INVALID_ARGUMENT', () => state.restore(Uint8Array.of(1, 2)));
  await fails('INVALID_ARGUMENT', () => session.state([{output: 'none', input: 'sum'}]), /none/);
  assert.throws(() => session.state([{output: 'total', input: 'sum', size: 1}]), /there is no option size/);
  state.close();
  await fails('INVALID_HANDLE', () => step(state, [1, 1]), /the State is closed/);
});

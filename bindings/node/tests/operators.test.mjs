// Custom operators in JavaScript.
import assert from 'node:assert/strict';
import test from 'node:test';

import {collect, customModel, evener, fails, newRuntime, newSession} from './common.mjs';

const twice = (changes = {}) => ({
  domain: 'mine', name: 'Twice',
  infer: (node, [x]) => [{dtype: x.dtype, dims: x.dims}],
  run: (node, [x], [y]) => y.data.set(x.data.map((each) => 2 * each)),
  ...changes,
});

function operatorSession(t, changes) {
  const runtime = newRuntime(t);
  runtime.registerOperator(twice(changes));
  return {runtime, session: newSession(t, runtime, customModel('Twice'))};
}

const numbers = (runtime, session, ...all) => Array.from(session.run([runtime.tensor(all)])[0].read());

test('an operator runs, again and with other shapes', (t) => {
  const {runtime, session} = operatorSession(t);
  assert.deepEqual(numbers(runtime, session, 1, -2, 3), [2, -4, 6]);
  assert.deepEqual(numbers(runtime, session, 4), [8]);
  assert.match(session.explain(), /Twice/);
});

test('models with operators are loaded by the functions that promise, too', async (t) => {
  const runtime = newRuntime(t);
  runtime.registerOperator(twice());
  const session = await runtime.createSession(customModel('Twice'), {timeout: 60000});
  t.after(() => session.close());
  assert.deepEqual(numbers(runtime, session, 1.5), [3]);
  const aborted = AbortSignal.abort();
  await fails('CANCELLED', runtime.createSession(customModel('Twice'), {signal: aborted}));
});

test('nodes have names and attributes', (t) => {
  let seen;
  const {runtime, session} = operatorSession(t, {
    run(node, inputs, [y]) {
      const {dtype, dims, data} = node.attribute('table');
      seen = {node, y, all: [node.name, ...['count', 'scale', 'label', 'axes', 'rates', 'words', 'none'].map((name) => node.attribute(name, 'nothing')), dtype, dims, Array.from(data)]};
      y.data[0] = 7;
    },
  });
  assert.deepEqual(numbers(runtime, session, 1), [7]);
  assert.deepEqual(seen.all, ['the_Twice', 3, 0.5, 'a label', [1, 2n ** 63n - 1n], [0.25, 4], ['one', 'two'], 'nothing', 'float32', [2], [1.5, 2.5]]);
  assert.ok(seen.node instanceof evener.OperatorNode);
  assert.throws(() => seen.node.name);
  assert.throws(() => seen.node.attribute('count'));
  seen.y.data[0] = 1; // memory of JavaScript's own, of which the library has a copy
});

test('what a function throws is the error', async (t) => {
  let thrown, answer;
  const runtime = newRuntime(t);
  runtime.registerOperator(twice({
    infer: (node, [x]) => answer ?? [{dtype: x.dtype, dims: x.dims}],
    run() { throw thrown; },
  }));
  const session = newSession(t, runtime, customModel('Twice'));
  const run = () => session.run([runtime.tensor([1])]);
  thrown = new Error('no such luck');
  const failed = await fails('INTERNAL', run, /mine::Twice.*no such luck/);
  assert.equal(failed.node, 'the_Twice');
  for (thrown of [null, 7, {}, {get message() { throw new Error('again'); }}]) await fails('INTERNAL', run, /no Error/);
  thrown = new evener.EvenerError('EVN_ERROR_UNSUPPORTED', 'not today');
  await fails('UNSUPPORTED', run, /not today/);
  for (answer of [[], [{}, {}], [{dtype: 'nothing', dims: []}], [{dtype: 'float32', dims: 'many'}], [{dtype: 'float32', dims: [-2]}], 7, [null]]) {
    await fails('INTERNAL', () => runtime.loadModelSync(customModel('Twice')), /mine::Twice/);
  }
});

test('run cannot be async, nor take away the memory of its outputs', async (t) => {
  let way;
  const {runtime, session} = operatorSession(t, {run: (node, inputs, [y]) => way(y)});
  way = async () => {};
  await fails('INTERNAL', () => session.run([runtime.tensor([1])]), /async/);
  way = (y) => { structuredClone(y.data, {transfer: [y.data.buffer]}); };
  await fails('INTERNAL', () => session.run([runtime.tensor([1])]), /detached|another size/);
  way = (y) => { y.data = null; };
  await fails('INTERNAL', () => session.run([runtime.tensor([1])]));
});

test('a model with an operator is not submitted, and not run on other threads', async (t) => {
  const {runtime, session} = operatorSession(t);
  const failed = await fails('UNSUPPORTED', () => session.submit([runtime.tensor([1])]), /mine::Twice.*caller's thread/);
  assert.equal(failed.node, 'the_Twice');
  await assert.rejects(runtime.quantizer(customModel('Twice')));
});

test('operators that are wrong are errors', async (t) => {
  const runtime = newRuntime(t);
  for (const changes of [{domain: 'ai.onnx'}, {domain: ''}, {sinceVersion: 0}, {inputs: [3, 2]}, {outputs: 0}]) await fails('INVALID_ARGUMENT', () => runtime.registerOperator(twice(changes)));
  for (const changes of [{infer: 7}, {run: undefined}, {inputs: 'many'}, {inputs: -1}, {valueInputs: [32]}, {other: 1}]) assert.throws(() => runtime.registerOperator(twice(changes)), TypeError);
  assert.throws(() => runtime.registerOperator(undefined), TypeError);
  runtime.registerOperator(twice());
  await fails('INVALID_ARGUMENT', () => runtime.registerOperator(twice()));
});

test('functions stay as long as objects of their runtime do', async (t) => {
  const runtime = new evener.Runtime({threadCount: 1, cacheDir: ''});
  runtime.registerOperator(twice());
  const loaded = runtime.loadModelSync(customModel('Twice'));
  const session = runtime.createSessionSync(loaded);
  const [x, y] = [runtime.tensor([21]), runtime.zeros('float32', [1])];
  loaded.close();
  runtime.close();
  for (let i = 0; i < 20; i++) {
    await collect(1);
    session.runInto([x], [y]);
  }
  assert.deepEqual(y.read(), Float32Array.of(42));
  for (const each of [session, x, y]) each.close();
  await collect();
});

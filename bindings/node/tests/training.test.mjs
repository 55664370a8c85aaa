// Training: written digits with the numbers of Python, and what is refused. EVENER_TRAINING is a folder that tests/training/make_digits_run.py wrote.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import test from 'node:test';
import {Worker} from 'node:worker_threads';

import {collect, evener, fails, linear, needed, newRuntime} from './common.mjs';

const BATCHES = 8, BATCH = 32, HELD = 64, PIXELS = 28 * 28;

function temporary(t) {
  const made = fs.mkdtempSync(path.join(os.tmpdir(), 'evener-'));
  t.after(() => fs.rmSync(made, {recursive: true}));
  return made;
}

// Pictures, their classes, and what Python made of them.
class Digits {
  constructor(runtime, folder) {
    const read = (name, Kind) => new Kind(new Uint8Array(fs.readFileSync(path.join(folder, name))).buffer);
    this.runtime = runtime;
    this.images = read('images.f32', Float32Array);
    this.labels = read('labels.i64', BigInt64Array);
    this.expected = read('expected.f64', Float64Array);
    assert.equal(this.labels.length, BATCHES * BATCH + HELD);
    assert.equal(this.expected.length, BATCHES + 3);
  }

  inputs(first, count) {
    return {x: this.runtime.tensor(this.images.subarray(first * PIXELS, (first + count) * PIXELS), [count, 1, 28, 28])};
  }

  classes(first, count) {
    return this.runtime.tensor(this.labels.subarray(first, first + count), [count]);
  }

  // Takes steps, whose losses are to be those of Python, to the last bit. They are asked for at once, and their tensors closed at once.
  async train(trainer, first, last) {
    const steps = [];
    for (let i = first; i < last; i++) {
      const inputs = this.inputs(i * BATCH, BATCH), classes = this.classes(i * BATCH, BATCH);
      steps.push(trainer.step(inputs, classes));
      inputs.x.close();
      classes.close();
    }
    for (const [at, step] of (await Promise.all(steps)).entries()) {
      assert.equal(step.loss, this.expected[first + at]);
      assert.equal(step.step, first + at + 1);
      assert.ok(step.skipped === false && step.gradientNorm > 0 && step.learningRate > 0);
    }
  }

  // Mean cross-entropy and right answers of logits of the pictures that were held back.
  score(logits) {
    let loss = 0, correct = 0;
    for (let row = 0; row < HELD; row++) {
      const of = [...logits.subarray(row * 10, row * 10 + 10)], label = Number(this.labels[BATCHES * BATCH + row]);
      loss += (Math.log(of.reduce((sum, each) => sum + Math.exp(each), 0)) - of[label]) / HELD;
      correct += of.indexOf(Math.max(...of)) === label ? 1 : 0;
    }
    return {loss, correct};
  }
}

const DIGITS = {
  optimizer: 'adamw', learningRate: 0.002, weightDecay: 0.01, groups: [{names: ['*.b'], rateFactor: 2, weightDecay: 0}], frozen: ['conv1.b'], schedule: 'cosine',
  scheduleSteps: 16, warmupSteps: 2, clipNorm: 1, seed: 7n,
};

test('digits are learned with the numbers of Python', async (t) => {
  const file = needed(t, 'EVENER_TRAINING', 'expected.f64');
  if (!file) return;
  const folder = path.dirname(file), network = path.join(folder, 'simple_cnn.onnx'), own = temporary(t);
  const checkpoint = path.join(own, 'digits.safetensors'), exported = path.join(own, 'digits.onnx');
  const runtime = newRuntime(t);
  const digits = new Digits(runtime, folder);
  const trainer = await runtime.trainer(network, DIGITS);
  await digits.train(trainer, 0, BATCHES / 2);
  await trainer.save(checkpoint);
  await digits.train(trainer, BATCHES / 2, BATCHES);
  assert.ok(digits.expected[BATCHES - 1] < digits.expected[0]);
  const held = digits.inputs(BATCHES * BATCH, HELD);
  const found = await trainer.evaluate(held, digits.classes(BATCHES * BATCH, HELD));
  assert.deepEqual([found.loss, found.correct, found.count], [...digits.expected.subarray(BATCHES)]);
  assert.ok(found.accuracy > 0.5 && found.accuracy === found.correct / HELD);

  // From its own checkpoint and from Python's it goes on with the same bits.
  const learned = await trainer.parameters();
  for (const from of [checkpoint, path.join(folder, 'state.safetensors')]) {
    const other = await runtime.trainer(network, DIGITS);
    await other.restore(from);
    await digits.train(other, BATCHES / 2, BATCHES);
    for (const [name, tensor] of Object.entries(await other.parameters())) assert.deepEqual(tensor.data, learned[name].data);
    other.close();
  }

  await trainer.export(exported);
  for (const trained of [await trainer.finish(), await runtime.loadModel(exported)]) {
    const session = await runtime.createSession(trained);
    const {loss, correct} = digits.score(session.run([held.x])[0].data);
    assert.ok(Math.abs(loss - found.loss) < 1e-5, `${loss} ${found.loss}`);
    assert.equal(correct, found.correct);
    session.close();
  }
  trainer.close();
});

const inputsOf = (runtime) => ({x: runtime.tensor(Float32Array.from({length: 24}, (_, i) => ((i * 5) % 7) / 3 - 1), [6, 4])});
const labelsOf = (runtime, ...classes) => runtime.tensor(BigInt64Array.from(classes, BigInt));

async function lossesOf(runtime, trainer, steps) {
  const inputs = inputsOf(runtime), labels = labelsOf(runtime, 0, 1, 2, 2, 1, 0), made = [];
  for (let i = 0; i < steps; i++) made.push((await trainer.step(inputs, labels)).loss);
  return made;
}

test('misuse of a trainer is an error and changes nothing', async (t) => {
  const runtime = newRuntime(t);
  const trainer = await runtime.trainer(linear()), same = await runtime.trainer(linear());
  const {x} = inputsOf(runtime), y = labelsOf(runtime, 0, 1, 2, 2, 1, 0);
  const closed = labelsOf(runtime, 0);
  closed.close();
  const refused = async (status, inputs, labels, message) => {
    await fails(status, trainer.step(inputs, labels), message);
    await fails(status, trainer.evaluate(inputs, labels), message);
  };
  await refused('INVALID_ARGUMENT', {x}, labelsOf(runtime, 0, 1, 2, 3, 1, 0), /3/);
  await refused('INVALID_ARGUMENT', {x}, labelsOf(runtime, 0, 1, 2, -1, 1, 0), /-1/);
  await refused('INVALID_ARGUMENT', {x}, labelsOf(runtime, 0, 1, 2), /batch/);
  await refused('INVALID_ARGUMENT', {x}, runtime.tensor(new Int32Array(6)), /dtype/);
  await refused('INVALID_ARGUMENT', {x}, null, /labels/);
  await refused('INVALID_HANDLE', {x}, closed, /closed/);
  await refused('INVALID_HANDLE', {x: closed}, y, /closed/);
  await refused('INVALID_ARGUMENT', {z: x}, y, /z/);
  await refused('INVALID_ARGUMENT', [x, x], y);
  await refused('INVALID_ARGUMENT', {x: runtime.tensor(new Float32Array(18), [6, 3])}, y);
  await refused('INVALID_ARGUMENT', [runtime.tensor(new Float64Array(24), [6, 4])], y);
  await assert.rejects(trainer.step({}, y), evener.EvenerError);
  await assert.rejects(trainer.step(undefined, y), TypeError);
  await assert.rejects(trainer.step({x: [1, 2]}, y), TypeError);
  await assert.rejects(trainer.step(x, y), TypeError);
  await assert.rejects(trainer.save(5), TypeError);
  await assert.rejects(trainer.noteMetric('low'), TypeError);
  await fails('INVALID_ARGUMENT', trainer.setLearningRate(NaN));
  for (const call of ['save', 'restore', 'export']) await fails('IO', trainer[call]('/nowhere/at/all'));
  const broken = path.join(temporary(t), 'broken.safetensors');
  fs.writeFileSync(broken, 'nothing');
  await assert.rejects(trainer.restore(broken), evener.EvenerError);
  assert.deepEqual(await lossesOf(runtime, trainer, 3), await lossesOf(runtime, same, 3));

  // The call that has begun ends normally; the call that waits for its turn fails.
  const waiting = [trainer.step({x}, y), trainer.step({x}, y)];
  trainer.close();
  trainer.close();
  const [first, second] = await Promise.allSettled(waiting);
  assert.equal(first.status, 'fulfilled');
  assert.equal(second.reason.status, 'EVN_ERROR_INVALID_HANDLE');
  await refused('INVALID_HANDLE', {x}, y, /the Trainer is closed/);
  for (const call of ['finish', 'parameters', 'gradients', 'describe']) await fails('INVALID_HANDLE', trainer[call](), /closed/);
  await fails('IO', runtime.trainer('/nowhere.onnx'), /nowhere/);
  assert.throws(() => new evener.Trainer(), /Illegal constructor/);
  await assert.rejects(evener.Trainer.prototype.step.call({}, {x}, y), TypeError);
  await collect();
});

test('each choice of a trainer reaches the library', async (t) => {
  const runtime = newRuntime(t);
  const refused = [
    {flags: ['nesterov']}, {output: 'none'}, {trainable: ['none']}, {trainable: []}, {groups: [{names: ['w'], rateFactor: -1}]}, {schedule: 'step'}, {pruneShare: 2}, {beta1: 1},
  ];
  for (const options of refused) await fails('INVALID_ARGUMENT', runtime.trainer(linear(), options));
  const wrong = [
    {loss: 'none'}, {optimizer: 'lion'}, {accumulate: -1}, {warmupSteps: 1.5}, {collectiveTimeoutMs: 2 ** 40}, {reduce: () => 0}, {timeout: 5}, {deadline: 5n},
    {cancel: 5}, {signal: 5}, {output: 'a\0b'}, {learningRate: '1'}, {plateauPatience: 2 ** 32 - 1}, 5,
  ];
  for (const options of wrong) await assert.rejects(runtime.trainer(linear(), options), TypeError);
  for (const options of [{device: 'nowhere'}, {replicas: ['nowhere', 'cpu']}, {collective: 'nothing'}]) {
    await assert.rejects(runtime.trainer(linear(), options), evener.EvenerError);
  }
  const inputs = inputsOf(runtime), labels = labelsOf(runtime, 0, 1, 2, 2, 1, 0);
  for (const loss of ['softmax_cross_entropy', 'bce_with_logits', 'mse', 'l1']) {
    const trainer = await runtime.trainer(linear(), {loss});
    const wanted = loss === 'softmax_cross_entropy' ? labels : runtime.zeros('float32', [6, 3]);
    const first = (await trainer.step(inputs, wanted)).loss;
    assert.ok((await trainer.step(inputs, wanted)).loss < first, loss);
  }
  for (const optimizer of ['sgd', 'adam', 'adamw', 'adagrad', 'rmsprop']) {
    const trainer = await runtime.trainer(linear(), {optimizer});
    const made = await lossesOf(runtime, trainer, 5);
    assert.ok(made[4] < made[0], optimizer);
    assert.equal(JSON.parse(await trainer.describe('json')).optimizer, optimizer);
  }
  const trainer = await runtime.trainer(linear(), {schedule: 'plateau', plateauPatience: 3, scheduleFactor: 0.5, trainable: ['*'], frozen: ['b'], precision: 'bf16'});
  await trainer.setLearningRate(0.5);
  const before = await trainer.parameters();
  assert.deepEqual(Object.keys(before), ['w']);
  assert.deepEqual((await trainer.gradients()).w.data, new Float32Array(12));
  assert.equal((await trainer.step(inputs, labels)).learningRate, 0.5);
  const after = await trainer.parameters(), gradient = await trainer.gradients();
  before.w.data.forEach((each, i) => assert.ok(Math.abs(each - 0.5 * gradient.w.data[i] - after.w.data[i]) < 1e-6));
  for (let i = 0; i < 5; i++) await trainer.noteMetric(1);
  assert.equal((await trainer.step([inputs.x], labels)).learningRate, 0.25);
  const wrapped = Float32Array.from(inputs.x.data);
  assert.equal(typeof (await trainer.step([runtime.wrap(wrapped, [6, 4])], labels)).loss, 'number');
});

test('zero is a value', async (t) => {
  const runtime = newRuntime(t);
  const after = async (options) => {
    const trainer = await runtime.trainer(linear(), {optimizer: 'adamw', ...options});
    await lossesOf(runtime, trainer, 3);
    await trainer.noteMetric(1);
    await trainer.noteMetric(1);
    const {learningRate} = await trainer.step(inputsOf(runtime), labelsOf(runtime, 0, 1, 2, 2, 1, 0));
    return [Array.from((await trainer.parameters()).w.data), learningRate];
  };
  const byDefault = await after({});
  assert.equal(byDefault[1], 0.001);
  for (const same of [{learningRate: 0.001, weightDecay: 0.01, beta1: 0.9}, {groups: [{names: ['*']}]}]) assert.deepEqual(await after(same), byDefault);
  for (const other of [{learningRate: 0}, {weightDecay: 0}, {beta1: 0}, {groups: [{names: ['*'], weightDecay: 0}]}]) assert.notDeepEqual((await after(other))[0], byDefault[0]);
  assert.ok(Math.abs((await after({schedule: 'plateau', plateauPatience: 0}))[1] - 0.0001) < 1e-12);
});

test('a signal ends a trainer\'s calls', async (t) => {
  const runtime = newRuntime(t);
  const controller = new AbortController();
  const trainer = await runtime.trainer(linear(), {signal: controller.signal});
  await lossesOf(runtime, trainer, 1);
  controller.abort(new Error('enough'));
  const inputs = inputsOf(runtime), labels = labelsOf(runtime, 0, 1, 2, 2, 1, 0);
  assert.equal((await fails('CANCELLED', trainer.step(inputs, labels))).cause.message, 'enough');
  await fails('CANCELLED', trainer.evaluate(inputs, labels));
  assert.equal(Object.keys(await trainer.parameters()).length, 2);
  await fails('CANCELLED', runtime.trainer(linear(), {signal: controller.signal}));
});

test('a step does not hold up the event loop, and a worker may end while it trains', async (t) => {
  const runtime = newRuntime(t);
  const trainer = await runtime.trainer(linear());
  const x = runtime.zeros('float32', [1 << 18, 4]), y = runtime.zeros('int64', [1 << 18]);
  let turns = 0, ended = false;
  const step = trainer.step({x}, y).finally(() => { ended = true; });
  while (!ended) {
    turns++;
    await new Promise((resolve) => setImmediate(resolve));
  }
  await step;
  assert.ok(turns > 1, `${turns}`);
  const source = `
    const {workerData} = require('node:worker_threads');
    const evener = require(workerData.index);
    (async () => {
      const runtime = new evener.Runtime({threadCount: 1, cacheDir: ''});
      const trainer = await runtime.trainer(workerData.model);
      const x = runtime.zeros('float32', [4096, 4]), y = runtime.zeros('int64', [4096]);
      await trainer.step({x}, y);
      for (let i = 0; i < 50; i++) trainer.step({x}, y).catch(() => {});
      process.exit();
    })();`;
  const index = new URL('../lib/index.js', import.meta.url).pathname;
  await new Promise((resolve, reject) => {
    new Worker(source, {eval: true, workerData: {index, model: linear()}}).on('error', reject).on('exit', resolve);
  });
});

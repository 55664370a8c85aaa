// Runtimes: devices and memory, configuration, models, statistics, traces, the log, quantization.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import test from 'node:test';

import {collect, double, doubling, externalProduct, fails, linear, newRuntime, newSession, product} from './common.mjs';

function folder(t) {
  const made = fs.mkdtempSync(path.join(os.tmpdir(), 'evener-'));
  t.after(() => fs.rmSync(made, {recursive: true}));
  return made;
}

test('a session of a file takes allowed roots, a folder and flags as its model does', async (t) => {
  const runtime = newRuntime(t), root = folder(t), store = path.join(root, 'store'), models = path.join(root, 'models');
  fs.mkdirSync(store);
  fs.mkdirSync(models);
  fs.writeFileSync(path.join(store, 'w.evener-bin'), doubling());
  fs.symlinkSync('../store/w.evener-bin', path.join(models, 'w.bin'));
  const model = externalProduct('w.bin'), file = path.join(models, 'm.onnx');
  const x = runtime.tensor(new Float32Array(64).fill(3), [1, 64]);
  fs.writeFileSync(file, model);
  const isMapped = () => fs.readFileSync('/proc/self/maps', 'utf8').includes('/w.evener-bin');
  const check = async (source, options, mapped) => {
    const session = await runtime.createSession(source, {allowedRoots: [store], ...options});
    assert.deepEqual(session.run([x])[0].read(), new Float32Array(64).fill(6));
    assert.equal(isMapped(), mapped);
    session.close();
  };
  await fails('INVALID_MODEL', () => runtime.createSession(file));
  await fails('INVALID_MODEL', () => runtime.createSession(file, {allowedRoots: [models]}));
  await check(file, {}, false);
  await check(model, {externalDir: models}, false);
  await check(file, {flags: ['map']}, true);
  await check(model, {externalDir: models, flags: ['map']}, true);
});

test('devices, their memory and its caps', async (t) => {
  const runtime = newRuntime(t);
  const [cpu] = runtime.devices();
  assert.equal(cpu.name, 'cpu');
  assert.equal(cpu.info().kind, 'cpu');
  assert.ok(cpu.info().description.length > 0 && cpu.condition() === '');
  assert.ok(runtime.describeDevices().includes('cpu') && JSON.parse(runtime.describeDevices('json')));
  const before = cpu.memoryStats();
  assert.equal(before.limit, null);
  const tensor = runtime.zeros('uint8', [1 << 20]);
  const stats = cpu.memoryStats();
  assert.ok(stats.current - before.current >= 1 << 20 && stats.byClass[0] >= 1 << 20 && stats.reserved >= stats.current);
  tensor.close();
  cpu.resetMemoryPeak();
  assert.equal(cpu.memoryStats().peak, cpu.memoryStats().current);
  cpu.trimMemory();
  cpu.setMemoryLimit(1 << 20);
  assert.equal(cpu.memoryStats().limit, 1 << 20);
  const failed = await fails('OUT_OF_MEMORY', () => runtime.zeros('uint8', [1 << 22]));
  assert.equal(failed.bytesRequested, 1 << 22);
  await fails('INVALID_ARGUMENT', () => cpu.setMemoryLimit(1));
  cpu.setMemoryLimit(2n ** 60n);
  assert.equal(cpu.memoryStats().limit, 2n ** 60n);
  cpu.setMemoryLimit(null);
  cpu.setCachePolicy(1 << 16, 'idle');
  assert.deepEqual([cpu.memoryStats().limit, cpu.memoryStats().cacheLimit, cpu.memoryStats().trim], [null, 1 << 16, 'idle']);
  await fails('DEVICE_UNAVAILABLE', () => runtime.device('gpu:77'));
});

test('tensors of an OpenCL device', async (t) => {
  const runtime = newRuntime(t);
  let device;
  try {
    device = runtime.device('opencl:0');
  } catch (error) {
    assert.equal(error.status, 'EVN_ERROR_DEVICE_UNAVAILABLE');
    assert.ok(!process.env.EVN_REQUIRE_OPENCL, error.message);
    t.skip('there is no OpenCL device');
    return;
  }
  assert.equal(device.info().kind, 'opencl');
  const x = runtime.tensor([1, 2, 3], [3], 'float32', {device});
  assert.equal(x.device, device.name);
  assert.deepEqual(x.read(), Float32Array.of(1, 2, 3));
  await fails('UNSUPPORTED', () => x.data, /read\(\) copies it/);
  x.write(Float32Array.of(4, 5, 6));
  const copy = x.copyTo(runtime.device('cpu'));
  assert.deepEqual(copy.data, Float32Array.of(4, 5, 6));
  assert.equal(runtime.zeros('float32', [4], {device, pinned: true}).info.flags[0], 'pinned');
  await fails('UNSUPPORTED', () => runtime.tensor(['a'], [1], 'string', {device}));
  const session = newSession(t, runtime, double(), {device: device.name});
  const [y] = session.run([x], {flags: ['outputs_on_device']});
  assert.equal(y.device, device.name);
  assert.deepEqual(y.read(), Float32Array.of(8, 10, 12));
  const [z] = await session.submit([copy]);
  assert.equal(z.device, 'cpu');
  assert.deepEqual(z.read(), y.read());
  await fails('INVALID_ARGUMENT', () => session.run([runtime.tensor(Int32Array.of(1), [1], 'int32', {device})]));
});

test('models say what they are', async (t) => {
  const runtime = newRuntime(t);
  const model = await runtime.loadModel(double());
  assert.deepEqual(model.inputs()[0], {name: 'x', dtype: 'float32', dims: [-1], symbols: ['n'], type: 'tensor(float32)'});
  assert.equal(model.outputs()[0].name, 'y');
  assert.deepEqual(model.metadataKeys(), ['author', 'empty']);
  assert.deepEqual([model.metadata('author'), model.metadata('empty'), model.metadata('none')], ['me', '', undefined]);
  assert.ok(JSON.parse(model.describe('json')) && model.describe().includes('Add'));
  const report = JSON.parse(await runtime.inspect(double(), {format: 'json', shapes: [{name: 'x', dims: [8]}]}));
  assert.ok(report.loads && report.estimate.complete);
  const file = path.join(folder(t), 'double.onnx');
  fs.writeFileSync(file, double());
  assert.ok(JSON.parse(await runtime.inspect(file, {format: 'json'})).loads);
  const session = await runtime.createSession(file, {name: 'mine', timeout: 60000});
  assert.equal(JSON.parse(session.statistics('json')).name, 'mine');
});

test('a configuration places nodes, and another takes its place', async (t) => {
  const runtime = newRuntime(t, {configText: 'placement:\n  default: cpu\n  rules:\n    - {match: {op: Add}, device: cpu}\n'});
  const session = newSession(t, runtime, double());
  const [node] = JSON.parse(session.explain('json')).nodes;
  assert.equal(node.device, 'cpu');
  assert.equal(node.rule_line, 4);
  assert.ok(session.explain('dot').startsWith('digraph') && session.explain('svg').includes('<svg') && session.explain().includes('Add'));
  await runtime.reconfigure({configText: 'placement: {default: cpu}\n'});
  assert.notEqual(JSON.parse(session.explain('json')).nodes[0].rule_line, 4);
  assert.deepEqual(session.run([runtime.tensor([2])])[0].read(), Float32Array.of(4));
  await fails('CONFIG', runtime.reconfigure({configText: 'placement: {defaultt: cpu}\n'}), /default/);
  await fails('TIMEOUT', runtime.reconfigure({configText: 'placement: {default: cpu}\n', deadline: 1n}));
  await fails('CANCELLED', runtime.reconfigure({configText: 'placement: {default: cpu}\n', signal: AbortSignal.abort()}));
});

test('sessions of names', async (t) => {
  const made = folder(t);
  fs.writeFileSync(path.join(made, 'double.onnx'), double());
  fs.writeFileSync(path.join(made, 'evener.yaml'), 'models:\n  twice:\n    path: double.onnx\n');
  const runtime = newRuntime(t, {configPath: path.join(made, 'evener.yaml')});
  const [one, other] = await Promise.all([runtime.session('twice'), runtime.session('twice')]);
  assert.deepEqual(one.run([runtime.tensor([3])])[0].read(), Float32Array.of(6));
  other.run([runtime.tensor([3])]);
  assert.ok(JSON.parse(one.statistics('json')).all.completed >= 2);
  await fails('INVALID_ARGUMENT', runtime.session('thrice'), /twice/);
});

test('statistics, memory of sessions, traces, comparisons, calibration', async (t) => {
  const runtime = newRuntime(t);
  const session = newSession(t, runtime, double());
  const x = runtime.tensor([1]);
  session.traceStart(1000);
  await fails('WRONG_STATE', () => session.traceStart());
  session.run([x]);
  session.traceStop();
  assert.ok(JSON.parse(session.trace()).traceEvents.length > 0);
  assert.ok(session.trace('text').includes('Add'));
  assert.ok(JSON.parse(session.statistics('json')).all.completed >= 1);
  assert.match(runtime.statistics('prometheus'), /evener_requests_total/);
  assert.ok(JSON.parse(runtime.statistics('json')).devices.length >= 1);
  assert.ok(session.memoryStats().planCount >= 1);
  const compared = JSON.parse(await session.compare(newSession(t, runtime, double()), {x}, 'json'));
  assert.equal(compared.outputs[0].largest_error, 0);
  const model = runtime.loadModelSync(double());
  assert.ok(JSON.parse(await runtime.calibrate(model, {format: 'json'})).devices.length >= 1);
  await fails('CANCELLED', runtime.calibrate('all', {signal: AbortSignal.abort()}));
  await assert.rejects(runtime.calibrate(), TypeError);
});

test('the log comes as records', async (t) => {
  const records = [];
  const runtime = newRuntime(t, {logLevel: 'debug', log: (record) => records.push(record)});
  newSession(t, runtime, double());
  runtime.close();
  await new Promise((resolve) => setTimeout(resolve, 50));
  const events = records.map((record) => record.event);
  for (const event of ['runtime.created', 'model.loaded', 'session.created']) assert.ok(events.includes(event), `${events}`);
  const loaded = records.find((record) => record.event === 'model.loaded');
  assert.ok(loaded.message.length > 0 && Object.keys(loaded.fields).length > 0 && Number(loaded.timestampNs) > 0);
  assert.ok(['info', 'debug'].includes(loaded.level));
  assert.throws(() => newRuntime(t, {log: 5}), /a function is wanted/);
});

test('quantization tells its progress, and is worth what it says', async (t) => {
  const runtime = newRuntime(t);
  const steps = [];
  const quantizer = await runtime.quantizer(product(), {mode: 'static', calibration: 'minmax', flags: ['per_tensor'], progress: (...step) => steps.push(step)});
  const batch = (seed) => runtime.wrap(Float32Array.from({length: 8 * 64}, (_, i) => Math.sin(seed + i)), [8, 64]);
  await fails('WRONG_STATE', quantizer.finish());
  await quantizer.addBatch([batch(1)]);
  await quantizer.addBatch({x: batch(2)});
  await quantizer.guard([batch(3)], {flags: ['error'], minCosine: 0.5});
  const model = await quantizer.finish();
  await quantizer.verify([batch(4)]);
  const report = JSON.parse(quantizer.report('json'));
  assert.equal(report.batches, 2);
  assert.ok(report.quantized_nodes >= 1 && report.outputs[0].cosine > 0.99);
  assert.ok(steps.length > 0 && steps.every(([what, done, total]) => typeof what === 'string' && done <= Math.max(done, total)));
  const file = path.join(folder(t), 'quantized.onnx');
  await quantizer.save(file);
  const session = await runtime.createSession(file);
  assert.equal(session.run([batch(5)])[0].dims[0], 8);
  assert.ok(runtime.createSessionSync(model));
  await fails('INVALID_ARGUMENT', quantizer.addBatch({nothing: batch(1)}), /nothing/);
  quantizer.close();
  quantizer.close();
  assert.throws(() => quantizer.report(), /closed/);
  await collect();
});

test('what a promised call is given may be closed before it ends', async (t) => {
  const runtime = newRuntime(t);
  const rows = () => runtime.zeros('float32', [8, 64]);
  const used = runtime.devices()[0].memoryStats().byClass[0];
  for (let i = 0; i < 200; i++) {
    const model = runtime.loadModelSync(product());
    const created = runtime.createSession(model);
    model.close();
    const session = await created;
    const other = newSession(t, runtime, product()), x = rows();
    const compared = session.compare(other, [x], 'json');
    for (const each of [session, other, x]) each.close();
    assert.equal(JSON.parse(await compared).outputs[0].largest_error, 0);
    await fails('INVALID_HANDLE', session.compare(session, []));
    const quantizer = await runtime.quantizer(product()), batch = rows();
    const added = quantizer.addBatch([batch]);
    for (const each of [batch, quantizer]) each.close();
    await added;
  }
  assert.equal(runtime.devices()[0].memoryStats().byClass[0], used);
});

test('a runtime and a trainer may be closed while calls of several steps use them', async (t) => {
  for (let i = 0; i < 20; i++) {
    const runtime = newRuntime(t);
    const trainer = await runtime.trainer(linear());
    const made = [runtime.createSession(product()), trainer.parameters(), runtime.quantizer(product()), runtime.loadModel(double())];
    trainer.close();
    runtime.close();
    const [session, {w, b}] = await Promise.all(made);
    assert.deepEqual([w.dims, b.dims], [[4, 3], [3]]);
    session.close();
  }
});

test('a signal ends a quantizer\'s calls', async (t) => {
  const runtime = newRuntime(t);
  const controller = new AbortController();
  const quantizer = await runtime.quantizer(product(), {signal: controller.signal});
  controller.abort(new Error('enough'));
  const failed = await fails('CANCELLED', quantizer.addBatch([runtime.zeros('float32', [1, 64])]));
  assert.equal(failed.cause.message, 'enough');
  await fails('CANCELLED', runtime.quantizer(product(), {signal: controller.signal}));
  await fails('INVALID_ARGUMENT', runtime.quantizer(double()));
  await assert.rejects(runtime.quantizer(product(), {mode: 'none'}), /there is no none: static/);
  await assert.rejects(runtime.quantizer(product(), {progress: 1}), /a function is wanted/);
});

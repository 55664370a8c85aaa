// Tensors: made, seen without a copy, wrapped; what is closed, detached or of another kind.
import assert from 'node:assert/strict';
import test from 'node:test';
import {MessageChannel} from 'node:worker_threads';

import {collect, double, evener, fails, identity, newRuntime, newSession, STRING} from './common.mjs';

test('tensors of all dtypes have arrays of theirs', (t) => {
  const runtime = newRuntime(t);
  const kinds = {float32: Float32Array, float64: Float64Array, int8: Int8Array, uint8: Uint8Array, int16: Int16Array, uint16: Uint16Array,
    int32: Int32Array, uint32: Uint32Array, int64: BigInt64Array, uint64: BigUint64Array, bool: Uint8Array, float16: Uint16Array, bfloat16: Uint16Array};
  for (const [dtype, kind] of Object.entries(kinds)) {
    const values = kind.from([1, 2, 3, 4, 5, 6].map((each) => (dtype.includes('int64') ? BigInt(each) : each)));
    for (const tensor of [runtime.tensor(values, [2, 3], dtype), runtime.wrap(values, [2, 3], dtype)]) {
      assert.equal(tensor.dtype, dtype);
      assert.deepEqual(tensor.dims, [2, 3]);
      assert.equal(tensor.info.sizeBytes, values.byteLength);
      assert.ok(tensor.data instanceof kind);
      assert.deepEqual(tensor.read(), values);
      tensor.close();
    }
  }
  assert.equal(runtime.zeros('complex64', [2]).data.length, 4);
  assert.equal(runtime.zeros('int4', [3]).data.length, 2);
  assert.deepEqual(runtime.tensor([1, 2], undefined, 'int32').data, Int32Array.of(1, 2));
  assert.deepEqual(runtime.zeros('float32', []).data, Float32Array.of(0));
  assert.equal(runtime.zeros('float32', [0, 4]).data.length, 0);
});

test('memory is seen without a copy, and stays as long as its array', (t) => {
  const runtime = newRuntime(t);
  const tensor = runtime.tensor([1, 2, 3, 4]);
  const data = tensor.data;
  assert.equal(tensor.data, data);
  const part = tensor.part(2, [2]);
  part.data[0] = 30;
  assert.equal(data[2], 30);
  tensor.close();
  assert.deepEqual(data, Float32Array.of(1, 2, 30, 4));
  assert.deepEqual(part.read(), Float32Array.of(30, 4));
  const array = Float32Array.of(5, 6);
  const wrapped = runtime.wrap(array);
  assert.equal(wrapped.data, array);
  wrapped.write(Float32Array.of(7, 8));
  assert.deepEqual(array, Float32Array.of(7, 8));
});

test('what does not fit is an error', async (t) => {
  const runtime = newRuntime(t);
  await fails('INVALID_ARGUMENT', () => runtime.tensor(Float32Array.of(1), [1], 'int64'), /BigInt64Array/);
  await fails('INVALID_ARGUMENT', () => runtime.tensor(Float32Array.of(1), [2]), /4 bytes.*8/);
  await fails('INVALID_ARGUMENT', () => runtime.wrap(Float32Array.of(1), [2]));
  await fails('LIMIT', () => runtime.zeros('float32', [1, 1, 1, 1, 1, 1, 1, 1, 1]));
  assert.throws(() => runtime.zeros('float99', [1]), /there is no float99/);
  assert.throws(() => runtime.zeros('float32', [1.5]), /whole number/);
  assert.throws(() => runtime.zeros('float32', 5), TypeError);
  assert.throws(() => runtime.zeros('float32', [2n ** 70n]), /64 bits/);
  assert.throws(() => runtime.wrap([1, 2]), TypeError);
  assert.throws(() => runtime.wrap(new DataView(new ArrayBuffer(4))), TypeError);
  assert.throws(() => runtime.tensor(['a', 5]), /a string is wanted/);
  const tensor = runtime.tensor([1, 2]);
  await fails('INVALID_ARGUMENT', () => tensor.write(Float32Array.of(1)));
  await fails('INVALID_ARGUMENT', () => tensor.write(Int32Array.of(1, 2)));
  await fails('INVALID_ARGUMENT', () => tensor.part(1, [2]));
  await fails('INVALID_ARGUMENT', () => tensor.copyInto(runtime.zeros('float32', [3])));
});

test('memory that cannot be kept is refused', async (t) => {
  const runtime = newRuntime(t);
  assert.throws(() => runtime.wrap(new Float32Array(new SharedArrayBuffer(8))), /SharedArrayBuffer/);
  if ('resizable' in ArrayBuffer.prototype) {
    await fails('INVALID_ARGUMENT', () => runtime.wrap(new Float32Array(new ArrayBuffer(8, {maxByteLength: 16}))), /resizable/);
  }
  const sent = new Float32Array(2);
  structuredClone(sent, {transfer: [sent.buffer]});
  assert.throws(() => runtime.wrap(sent, [2]));
  // A copy of shared memory is a tensor as any other.
  const shared = new Float32Array(new SharedArrayBuffer(8)).fill(3);
  assert.deepEqual(runtime.tensor(shared).read(), Float32Array.of(3, 3));
});

test('memory that is in use is not transferred, and where it was all the same that is found', async (t) => {
  const runtime = newRuntime(t);
  const session = newSession(t, runtime, double());
  const array = Float32Array.of(1, 2);
  const tensor = runtime.wrap(array);
  const {port1, port2} = new MessageChannel();
  try {
    port1.postMessage(array.buffer, [array.buffer]);
  } catch (error) {
    assert.equal(error.name, 'DataCloneError');
  }
  port1.close();
  port2.close();
  assert.equal(array.buffer.byteLength, 8);
  if (!ArrayBuffer.prototype.transfer) return;
  // Memory of the library's goes with the buffer that has it.
  const own = runtime.tensor([1, 2]);
  let taken = own.data.buffer;
  try {
    taken = taken.transfer();
  } catch (error) {
    assert.ok(error instanceof TypeError);
  }
  own.close();
  await collect();
  assert.deepEqual(new Float32Array(taken), Float32Array.of(1, 2));
  // A request has what it needs, whatever becomes of the array meanwhile.
  const into = runtime.wrap(new Float32Array(2));
  const request = session.submit([tensor], {into: [into]});
  let moved;
  try {
    moved = array.buffer.transfer();
  } catch (error) {
    assert.ok(error instanceof TypeError); // from Node 24 on
    assert.equal((await request)[0], into);
    assert.deepEqual(into.data, Float32Array.of(2, 4));
    return;
  }
  assert.equal((await request)[0], into);
  assert.deepEqual(into.data, Float32Array.of(2, 4));
  await fails('INVALID_ARGUMENT', () => session.run([tensor]), /detached/);
  await fails('INVALID_ARGUMENT', () => tensor.part(0, [1]), /detached/);
  assert.equal(moved.byteLength, 8);
  // And where the array has gone that the outputs were for, that is found.
  const other = session.submit([runtime.tensor([1, 2])], {into: [into]});
  into.data.buffer.transfer();
  await fails('INVALID_ARGUMENT', other, /detached/);
  await fails('INVALID_ARGUMENT', () => evener.Value.fromTensor(into), /detached/);
});

test('a value has the elements that its tensor had', (t) => {
  const runtime = newRuntime(t);
  const array = Float32Array.of(1, 2);
  const value = evener.Value.fromTensor(runtime.wrap(array));
  array[0] = 5;
  assert.deepEqual(value.tensor().read(), Float32Array.of(1, 2));
});

test('properties that an array was given are not believed', async (t) => {
  const runtime = newRuntime(t);
  const lie = (array, name, value) => Object.defineProperty(array, name, {value});
  await fails('INVALID_ARGUMENT', () => runtime.wrap(lie(new Float32Array(2), 'byteLength', 4096), [1024]));
  await fails('INVALID_ARGUMENT', () => runtime.wrap(lie(new Float32Array(2), 'length', 1024), [1024]));
  await fails('INVALID_ARGUMENT', () => runtime.tensor(lie(new Float32Array(2), 'byteLength', 4096), [1024]));
  await fails('INVALID_MODEL', () => runtime.loadModelSync(lie(new Uint8Array(4), 'byteLength', 1 << 30)));
  const other = new ArrayBuffer(8);
  const array = lie(Float32Array.of(1, 2), 'buffer', other);
  const tensor = runtime.wrap(array, [2]);
  assert.deepEqual(tensor.part(0, [2]).read(), Float32Array.of(1, 2));
  if (ArrayBuffer.prototype.transfer) {
    const real = Object.getOwnPropertyDescriptor(Object.getPrototypeOf(Uint8Array.prototype), 'buffer').get.call(array);
    lie(array, 'byteLength', 8);
    try {
      real.transfer();
    } catch (error) {
      assert.ok(error instanceof TypeError);
      return;
    }
    await fails('INVALID_ARGUMENT', () => tensor.part(0, [2]), /detached/);
  }
});

test('strings', async (t) => {
  const runtime = newRuntime(t);
  const words = ['', 'äöü', 'NUL\0inside', 'x'.repeat(10000)];
  const tensor = runtime.tensor(words, [2, 2]);
  assert.deepEqual(tensor.strings(), words);
  assert.equal(tensor.string(1), 'äöü');
  await fails('UNSUPPORTED', () => tensor.data, /strings/);
  await fails('INVALID_ARGUMENT', () => tensor.string(4));
  await fails('INVALID_ARGUMENT', () => tensor.setStrings(['one']));
  const session = newSession(t, runtime, identity(STRING));
  assert.deepEqual(session.run({x: runtime.tensor(words)}).y.strings(), words);
});

test('what is closed is an error, and closing it twice is not', async (t) => {
  const runtime = newRuntime(t);
  const session = newSession(t, runtime, double());
  const tensor = runtime.tensor([1]);
  const cpu = runtime.device('cpu');
  for (const each of [tensor, cpu, session, runtime]) {
    assert.equal(each.closed, false);
    each.close();
    each.close();
    assert.equal(each.closed, true);
  }
  await fails('INVALID_HANDLE', () => tensor.data, /the Tensor is closed/);
  await fails('INVALID_HANDLE', () => tensor.info, /closed/);
  await fails('INVALID_HANDLE', () => cpu.memoryStats());
  await fails('INVALID_HANDLE', () => session.run([]), /the Session is closed/);
  await fails('INVALID_HANDLE', () => session.runInto([], []));
  await fails('INVALID_HANDLE', () => runtime.zeros('float32', [1]));
  await fails('INVALID_HANDLE', runtime.loadModel(double()));
  const other = newRuntime(t);
  await fails('INVALID_HANDLE', () => newSession(t, other, double()).run([tensor]));
});

test('V8 is told of the memory of tensors, and collects those that nobody has', async (t) => {
  const runtime = newRuntime(t);
  const cpu = runtime.device('cpu');
  for (let i = 0; i < 200; i++) {
    const tensor = runtime.zeros('uint8', [1 << 24]);
    if (i % 2 === 0) tensor.data[0] = 1;
    await new Promise((resolve) => setImmediate(resolve));
  }
  assert.ok(cpu.memoryStats().peak < 100 * (1 << 24), `${cpu.memoryStats().peak}`);
});

test('using', {skip: !Symbol.dispose && 'this Node has no Symbol.dispose'}, async (t) => {
  const runtime = newRuntime(t);
  const tensor = runtime.tensor([1]);
  tensor[Symbol.dispose]();
  assert.equal(tensor.closed, true);
  const session = newSession(t, runtime, double());
  const request = session.submit([runtime.tensor([4])]);
  await session[Symbol.asyncDispose]();
  assert.equal(session.closed && request.done, true);
  assert.deepEqual((await request)[0].read(), Float32Array.of(8));
  assert.ok(evener.Runtime.prototype[Symbol.dispose]);
});

test('the syntax of using', async (t) => {
  const Async = (async () => {}).constructor;
  let body;
  try {
    body = new Async('make', 'tensor', 'await using session = make(); using one = tensor; return {session, one, closed: session.closed, request: session.submit([one])};');
  } catch (error) {
    assert.ok(error instanceof SyntaxError);
    t.skip('this Node has no syntax for it');
    return;
  }
  const runtime = newRuntime(t);
  const {session, one, closed, request} = await body(() => newSession(t, runtime, double()), runtime.tensor([3]));
  assert.deepEqual([closed, session.closed, one.closed, request.done], [false, true, true, true]);
  assert.deepEqual((await request)[0].read(), Float32Array.of(6));
});

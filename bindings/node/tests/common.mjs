// What the tests share: small models, runtimes that are closed at the end of a test, and what errors are compared with.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import {fileURLToPath} from 'node:url';

import evener from '../index.mjs';

export {evener};
export const TESTS = path.dirname(fileURLToPath(import.meta.url));

// ---------------------------------------------------------------- bytes of Protocol Buffers, as far as ONNX needs them

function varint(value) {
  const bytes = [];
  for (let rest = BigInt(value); ; rest >>= 7n) {
    if (rest < 128n) return [...bytes, Number(rest)];
    bytes.push(Number(rest & 127n) | 128);
  }
}

const number = (field, value) => Buffer.from([...varint(field << 3), ...varint(value)]);
const bytes = (field, value) => Buffer.concat([Buffer.from([...varint(field << 3 | 2), ...varint(value.length)]), value]);
const text = (field, value) => bytes(field, Buffer.from(value));
const all = (field, ...values) => Buffer.concat(values.map((value) => bytes(field, value)));
const join = (...parts) => Buffer.concat(parts);

export const FLOAT = 1;
export const INT64 = 7;
export const STRING = 8;

function tensorType(dtype, dims) {
  const shape = join(...dims.map((dim) => bytes(1, typeof dim === 'number' ? number(1, dim) : text(2, dim))));
  return bytes(1, join(number(1, dtype), bytes(2, shape)));
}

const value = (name, dtype, dims) => join(text(1, name), bytes(2, tensorType(dtype, dims)));

function node(op, inputs, outputs) {
  return join(...inputs.map((each) => text(1, each)), ...outputs.map((each) => text(2, each)), text(3, `the_${op}`), text(4, op));
}

function model(nodes, inputs, outputs, constants = [], metadata = []) {
  const graph = join(all(1, ...nodes), text(2, 'tiny'), all(5, ...constants), all(11, ...inputs), all(12, ...outputs));
  const properties = metadata.map(([key, said]) => bytes(14, join(text(1, key), text(2, said))));
  return join(number(1, 8), bytes(7, graph), bytes(8, join(text(1, ''), number(2, 17))), ...properties);
}

// y = x + x, of any length.
export const double = () => model([node('Add', ['x', 'x'], ['y'])], [value('x', FLOAT, ['n'])], [value('y', FLOAT, ['n'])], [], [['author', 'me'], ['empty', '']]);

// y = x, of any dtype.
export const identity = (dtype) => model([node('Identity', ['x'], ['y'])], [value('x', dtype, ['n'])], [value('y', dtype, ['n'])]);

// y = x w, with x of any number of rows of 64: a model that can be quantized.
export function product() {
  const weights = new Float32Array(64 * 64).map((_, i) => (i * 37 % 101 - 50) / 50);
  const constant = join(number(1, 64), number(1, 64), number(2, FLOAT), text(8, 'w'), bytes(9, Buffer.from(weights.buffer)));
  return model([node('MatMul', ['x', 'w'], ['y'])], [value('x', FLOAT, ['m', 64])], [value('y', FLOAT, ['m', 64])], [constant]);
}

// Model of y = 2 x whose w is in another file; `doubling` is the content of that file.
export function externalProduct(location) {
  const entry = (key, said) => bytes(13, join(text(1, key), text(2, said)));
  const constant = join(number(1, 64), number(1, 64), number(2, FLOAT), text(8, 'w'), entry('location', location), number(14, 1));
  return model([node('MatMul', ['x', 'w'], ['y'])], [value('x', FLOAT, ['m', 64])], [value('y', FLOAT, ['m', 64])], [constant]);
}
export const doubling = () => Buffer.from(new Float32Array(64 * 64).map((_, i) => (i % 65 === 0 ? 2 : 0)).buffer);

// total = sum + x and y = -total: a state of two numbers.
export const runningSum = () => model([node('Add', ['x', 'sum'], ['total']), node('Neg', ['total'], ['y'])],
  [value('x', FLOAT, [2]), value('sum', FLOAT, [2])], [value('total', FLOAT, [2]), value('y', FLOAT, [2])]);

// Two outputs of one input.
export const twoOutputs = () => model([node('Add', ['x', 'x'], ['sum']), node('Neg', ['x'], ['minus'])], [value('x', FLOAT, ['n'])],
  [value('sum', FLOAT, ['n']), value('minus', FLOAT, ['n'])]);

// A run that takes long: products of matrices of n by n, one after the other, `count` of them.
export function slow(count) {
  const names = Array.from({length: count + 1}, (_, i) => (i === 0 ? 'x' : i === count ? 'y' : `v${i}`));
  return model(names.slice(1).map((name, i) => node('MatMul', [names[i], names[i]], [name])), [value('x', FLOAT, ['n', 'n'])], [value('y', FLOAT, ['n', 'n'])]);
}

// A sequence of x and z, and its tensor at place 1.
export const sequence = () => {
  const made = bytes(2, bytes(4, bytes(1, tensorType(FLOAT, ['n']))));
  return model([node('SequenceConstruct', ['x', 'z'], ['s'])], [value('x', FLOAT, ['n']), value('z', FLOAT, ['n'])], [join(text(1, 's'), made)]);
};

// y = x k + b, where k is 2 and b is 1 unless they are given.
export function scale() {
  const float = (name, each) => join(number(2, FLOAT), text(8, name), bytes(9, Buffer.from(Float32Array.of(each).buffer)));
  return model([node('Mul', ['x', 'k'], ['m']), node('Add', ['m', 'b'], ['y'])], [value('x', FLOAT, ['n']), value('k', FLOAT, []), value('b', FLOAT, [])],
    [value('y', FLOAT, ['n'])], [float('k', 2), float('b', 1)]);
}

// Logits of three classes: y = x w + b, of any rows of four columns.
export function linear() {
  const floats = (name, dims, data) => join(...dims.map((dim) => number(1, dim)), number(2, FLOAT), text(8, name), bytes(9, Buffer.from(Float32Array.from(data).buffer)));
  const weights = Array.from({length: 12}, (_, i) => (i % 5) / 4 - 0.5);
  return model([node('MatMul', ['x', 'w'], ['p']), node('Add', ['p', 'b'], ['y'])], [value('x', FLOAT, ['m', 4])], [value('y', FLOAT, ['m', 3])],
    [floats('w', [4, 3], weights), floats('b', [3], [0, 0, 0])]);
}

// y = an operator of the domain "mine" of x, with an attribute of each kind.
export function customModel(op) {
  const float = (field, each) => Buffer.concat([Buffer.from(varint(field << 3 | 5)), Buffer.from(Float32Array.of(each).buffer)]);
  const attribute = (name, kind, said) => join(text(1, name), said, number(20, kind));
  const floats = (...all) => Buffer.from(Float32Array.from(all).buffer);
  const made = [
    attribute('count', 2, number(3, 3)), attribute('scale', 1, float(2, 0.5)), attribute('label', 3, text(4, 'a label')),
    attribute('axes', 7, join(number(8, 1), number(8, 2n ** 63n - 1n))), attribute('rates', 6, bytes(7, floats(0.25, 4))),
    attribute('words', 8, join(text(9, 'one'), text(9, 'two'))),
    attribute('table', 4, bytes(5, join(number(1, 2), number(2, FLOAT), text(8, 't'), bytes(9, floats(1.5, 2.5))))),
  ];
  const custom = join(node(op, ['x'], ['y']), all(5, ...made), text(7, 'mine'));
  const graph = join(all(1, custom), text(2, 'tiny'), all(11, value('x', FLOAT, ['n'])), all(12, value('y', FLOAT, ['n'])));
  return join(number(1, 8), bytes(7, graph), bytes(8, join(text(1, ''), number(2, 17))), bytes(8, join(text(1, 'mine'), number(2, 1))));
}

// --------------------------------------------------------------------------------------------------------- tests

export function newRuntime(t, options = {}) {
  const made = new evener.Runtime({threadCount: 2, cacheDir: '', ...options});
  t.after(() => made.close());
  return made;
}

export function newSession(t, runtime, bytesOfModel, options) {
  const loaded = runtime.loadModelSync(bytesOfModel);
  const made = runtime.createSessionSync(loaded, options);
  loaded.close();
  t.after(() => made.close());
  return made;
}

// Checks that a function or a promise fails with a status; gives the error.
export async function fails(status, what, message = /./) {
  let failed;
  try {
    await (typeof what === 'function' ? what() : what);
  } catch (error) {
    failed = error;
  }
  assert.ok(failed !== undefined, `nothing failed; ${status} was expected`);
  assert.ok(failed instanceof evener.EvenerError, `${failed.stack}`);
  assert.equal(failed.status, `EVN_ERROR_${status}`, failed.message);
  assert.match(failed.message, message);
  return failed;
}

// A file of a folder that an environment variable names; null where the test is skipped.
export function needed(t, variable, name) {
  const file = process.env[variable] && path.join(process.env[variable], name);
  if (file && fs.existsSync(file)) return file;
  assert.ok(!process.env.EVENER_REQUIRE, `EVENER_REQUIRE is set, and there is no ${name}: ${variable} names ${process.env[variable]}`);
  t.skip(`${variable} names no folder with ${name}`);
  return null;
}

// The kilobytes that the process has in memory. V8's own heap has a part in it, which --max-semi-space-size keeps small.
export const resident = () => Number(fs.readFileSync('/proc/self/statm', 'utf8').split(' ')[1]) * 4;

// Lets finalizers run: --expose-gc.
export async function collect(rounds = 3) {
  for (let i = 0; i < rounds; i++) {
    globalThis.gc();
    await new Promise((resolve) => setImmediate(resolve));
  }
}

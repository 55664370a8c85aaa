'use strict';
// Custom operators: functions of JavaScript that the library calls inside of loading and running, on the thread of their environment.
const {api} = require('./native.js');
const {arrayOf} = require('./tensor.js');

const KEY = Symbol('node');

// A node of an operator, as its functions see it; to be used until they return.
class OperatorNode {
  #id;

  constructor(key, id) {
    if (key !== KEY) throw new TypeError('Illegal constructor');
    this.#id = id;
  }

  get name() {
    return api.operator_node_name(this.#id);
  }

  // A number (a BigInt where that is not exact), a string, a list of these, or {dtype, dims, data}; `fallback` where it is not given.
  attribute(name, fallback) {
    if (typeof name !== 'string') throw new TypeError('the name of an attribute is a string');
    const value = api.operator_attribute(this.#id, name);
    return value === undefined ? fallback : value?.bytes === undefined ? value : shown(value);
  }
}

// What functions are given of a tensor: {dtype, dims, data}; null where it is not given. Its data is a copy.
function shown(view) {
  if (view === null) return null;
  const {dtype, dims, bytes} = view;
  return Object.freeze(bytes === undefined ? {dtype, dims} : {dtype, dims, data: new (arrayOf(dtype))(bytes)});
}

// Outputs of a run, which it fills.
function room(view) {
  if (view === null) return null;
  const {dtype, dims, sizeBytes} = view;
  return Object.freeze({dtype, dims, data: new (arrayOf(dtype))(new ArrayBuffer(Number(sizeBytes)))});
}

function promises(result) {
  return typeof result?.then === 'function';
}

// [least, most] of a count, or of such a pair; Infinity: any number.
function counts(value, what) {
  const [least, most] = Array.isArray(value) ? value : [value, value];
  for (const each of [least, most]) {
    if (!(Number.isInteger(each) && each >= 0) && each !== Infinity) throw new TypeError(`${what} is a whole number, or [least, most]`);
  }
  return [least, most === Infinity ? 0xffffffff : most];
}

function register(runtimeId, definition) {
  if (typeof definition !== 'object' || definition === null) throw new TypeError('an operator is an object');
  const {domain, name, sinceVersion = 1, inputs = 1, outputs = 1, valueInputs = [], infer, run, ...others} = definition;
  for (const other of Object.keys(others)) throw new TypeError(`there is no option ${other} of an operator`);
  for (const [what, value] of [['infer', infer], ['run', run]]) {
    if (typeof value !== 'function') throw new TypeError(`${what} of an operator is a function`);
  }
  const [minInputs, maxInputs] = counts(inputs, 'inputs');
  const [minOutputs, maxOutputs] = counts(outputs, 'outputs');
  let mask = 0;
  for (const index of valueInputs) {
    if (!(Number.isInteger(index) && index >= 0 && index < 32)) throw new TypeError('valueInputs are places of inputs, 0 to 31');
    mask = (mask | 1 << index) >>> 0;
  }
  const callInfer = (id, given, count) => {
    const answers = infer(new OperatorNode(KEY, id), given.map(shown), count);
    if (!Array.isArray(answers)) throw new TypeError('infer returns a list of {dtype, dims}');
    return answers.map((answer) => ({dtype: answer?.dtype, dims: answer?.dims ?? undefined}));
  };
  const callRun = (id, given, wanted) => {
    const made = wanted.map(room);
    if (promises(run(new OperatorNode(KEY, id), given.map(shown), made))) throw new TypeError('run fills its outputs before it returns: it cannot be async');
    return made.map((output) => output?.data ?? null);
  };
  api.runtime_register_operator(runtimeId, {domain, name, sinceVersion, minInputs, maxInputs, minOutputs, maxOutputs, valueInputs: mask}, callInfer, callRun);
}

module.exports = {OperatorNode, register};

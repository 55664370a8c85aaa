'use strict';
const {markAsUntransferable} = require('node:worker_threads');
const {api} = require('./native.js');
const {EvenerError, invalid} = require('./error.js');
const {KEY, Owned, idOf} = require('./owned.js');
const {Device} = require('./device.js');

const ARRAYS = {
  float32: Float32Array, float64: Float64Array, int8: Int8Array, uint8: Uint8Array, int16: Int16Array, uint16: Uint16Array, int32: Int32Array,
  uint32: Uint32Array, int64: BigInt64Array, uint64: BigUint64Array, bool: Uint8Array, float16: Uint16Array, bfloat16: Uint16Array,
  complex64: Float32Array, complex128: Float64Array, // pairs
};

// What arrays and buffers are, whatever properties they were given.
const getter = (prototype, name) => {
  const get = Object.getOwnPropertyDescriptor(prototype, name)?.get;
  return get === undefined ? () => false : (object) => Reflect.apply(get, object, []);
};
const TypedArray = Object.getPrototypeOf(Uint8Array.prototype);
const bytesOf = getter(TypedArray, 'byteLength');
const bufferOf = getter(TypedArray, 'buffer');
const isResizable = getter(ArrayBuffer.prototype, 'resizable');

// The class of arrays that show a dtype: bytes for what has no other.
const arrayOf = (dtype) => ARRAYS[dtype] ?? Uint8Array;

const BY_ARRAY = new Map(['float32', 'float64', 'int8', 'uint8', 'int16', 'uint16', 'int32', 'uint32', 'int64', 'uint64'].map((each) => [ARRAYS[each], each]));

// The dtype of an array, which may be said where several have the same arrays.
function dtypeOf(array, dtype) {
  const plain = BY_ARRAY.get([...BY_ARRAY.keys()].find((kind) => array instanceof kind));
  if (plain === undefined) throw new TypeError('a typed array of whole numbers or of floats is wanted');
  if (dtype === undefined) return plain;
  if (dtype === 'string' || !(array instanceof arrayOf(dtype))) throw invalid(`elements of ${dtype} are a ${dtype === 'string' ? 'list of strings' : arrayOf(dtype).name}, not a ${array.constructor.name}`);
  return dtype;
}

function checkDims(dims) {
  if (!Array.isArray(dims)) throw new TypeError('dims are an array of whole numbers');
  return dims;
}

// Whether an ArrayBuffer that is marked can be detached all the same: ArrayBuffer.prototype.transfer of Node 21 to 23 does not look at the mark.
const MOVABLE = (() => {
  const buffer = new ArrayBuffer(8);
  markAsUntransferable(buffer);
  try {
    buffer.transfer?.();
  } catch {
    return false;
  }
  return buffer.byteLength === 0;
})();

let liveId;
let lentId;
let isBorrowed;
let homeOf;

// Elements of one dtype on a device, row-major.
class Tensor extends Owned {
  #home; // {cpu, name}: the CPU device of the runtime
  #array; // the array whose memory this is, where it was wrapped
  #bytes = 0;
  #info;
  #data;
  #owner; // the tensor of wrapped memory that this is a part of

  constructor(key, id, home, array) {
    super(key, id, api.tensor_release);
    this.#home = home;
    if (array !== undefined) {
      this.#array = array;
      this.#bytes = bytesOf(array);
    }
  }

  // What it is: {dtype, flags, dims, sizeBytes, device}.
  get info() {
    const id = idOf(this, Tensor);
    return (this.#info ??= Object.freeze(api.tensor_get_info(id)));
  }

  get dtype() {
    return this.info.dtype;
  }

  get dims() {
    return [...this.info.dims];
  }

  get device() {
    return this.info.device;
  }

  #onCpu() {
    return this.info.device === this.#home.name;
  }

  // The memory itself, without a copy: as long as the array is there, so is the memory.
  get data() {
    const id = liveId(this);
    if (this.#array !== undefined) return this.#array;
    if (this.#data === undefined) {
      const {dtype, device} = this.info;
      if (dtype === 'string') throw new EvenerError('EVN_ERROR_UNSUPPORTED', 'strings have no memory that could be seen: strings() gives them');
      if (!this.#onCpu()) throw new EvenerError('EVN_ERROR_UNSUPPORTED', `the tensor is on ${device}, whose memory cannot be seen: read() copies it`, {device});
      this.#data = new (arrayOf(dtype))(api.tensor_map(id)); // memory goes where its buffer goes: it may be transferred
    }
    return this.#data;
  }

  // A copy of the elements, from whatever device.
  read() {
    if (this.#onCpu()) return this.data.slice();
    const copy = this.copyTo(this.#home.cpu);
    try {
      return copy.data.slice();
    } finally {
      copy.close();
    }
  }

  // Sets all elements, on whatever device.
  write(array) {
    const {dtype, dims, sizeBytes, flags, device} = this.info;
    dtypeOf(array, dtype);
    if (bytesOf(array) !== sizeBytes) throw invalid(`${array.byteLength} bytes: the tensor of ${dtype}${JSON.stringify(dims)} has ${sizeBytes}`);
    if (flags.includes('read_only')) throw invalid('the tensor is read-only');
    if (device === this.#home.name) {
      this.data.set(array);
      return;
    }
    const staged = from(this.#home, idOf(this.#home.cpu, Device), array, dims, dtype);
    try {
      staged.copyInto(this);
    } finally {
      staged.close();
    }
  }

  // All strings, of a tensor of them.
  strings() {
    return api.tensor_get_strings(liveId(this));
  }

  string(index) {
    return api.tensor_get_string(liveId(this), index);
  }

  setStrings(strings) {
    api.tensor_set_strings(liveId(this), strings);
  }

  // A part of this one's memory with dims of its own, from the element `first` on.
  part(first, dims) {
    const made = new Tensor(KEY, api.tensor_create_view(liveId(this), first, checkDims(dims)), this.#home);
    made.#owner = this.#owner ?? (this.#array === undefined ? undefined : this);
    return made;
  }

  copyTo(device) {
    return new Tensor(KEY, api.tensor_copy_to(liveId(this), idOf(device, Device)), this.#home);
  }

  copyInto(target) {
    api.tensor_copy(liveId(this), liveId(target));
  }

  static {
    // The slot of a tensor whose memory is where it was.
    liveId = (tensor) => {
      const id = idOf(tensor, Tensor);
      const owner = tensor.#owner ?? tensor;
      if (owner.#array !== undefined && bytesOf(owner.#array) !== owner.#bytes) {
        throw invalid('the memory of the tensor is no longer its array\'s: the ArrayBuffer was detached');
      }
      return id;
    };
    homeOf = (tensor) => tensor.#home;
    isBorrowed = (tensor) => (tensor.#owner ?? tensor).#array !== undefined;
    // The slot of a tensor for a call that goes on when JavaScript does. Memory that could be detached meanwhile, and freed, is copied for it:
    // `copies` gets what is closed when the call has ended.
    lentId = (tensor, copies) => {
      const id = liveId(tensor);
      if (!MOVABLE || !isBorrowed(tensor)) return id;
      const copy = tensor.copyTo(tensor.#home.cpu);
      copies.push(copy);
      return idOf(copy, Tensor);
    };
  }
}

// Zeros on a device of a runtime, its CPU if none is said.
function zeros(home, deviceId, dtype, dims, flags = 0) {
  return new Tensor(KEY, api.tensor_create(deviceId, dtype, checkDims(dims), flags), home);
}

// A copy of an array, or of a list of strings.
function from(home, deviceId, data, dims, dtype) {
  if (Array.isArray(data) && (dtype === 'string' || (dtype === undefined && typeof data[0] === 'string'))) {
    const made = zeros(home, deviceId, 'string', dims ?? [data.length]);
    try {
      made.setStrings(data);
    } catch (error) {
      made.close();
      throw error;
    }
    return made;
  }
  const array = Array.isArray(data) ? arrayOf(dtype ?? 'float32').from(data) : data;
  const made = zeros(home, deviceId, dtypeOf(array, Array.isArray(data) ? dtype ?? 'float32' : dtype), dims ?? [array.length]);
  try {
    made.write(array);
  } catch (error) {
    made.close();
    throw error;
  }
  return made;
}

// Over the array's own memory: runs read and write it. It can be transferred to no other thread any more.
function wrap(home, runtimeId, array, dims, dtype) {
  const kind = dtypeOf(array, dtype);
  const buffer = bufferOf(array);
  if (buffer instanceof ArrayBuffer && isResizable(buffer)) throw invalid('memory of a resizable ArrayBuffer cannot be wrapped');
  const id = api.tensor_wrap(runtimeId, array, kind, checkDims(dims ?? [array.length]));
  markAsUntransferable(buffer);
  return new Tensor(KEY, id, home, array);
}

module.exports = {Tensor, arrayOf, zeros, from, wrap, homeOf, isBorrowed, lentId, liveId, MOVABLE};

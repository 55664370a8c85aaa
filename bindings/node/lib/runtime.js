'use strict';
const {api, ready} = require('./native.js');
const {KEY, Owned, idOf, inUse} = require('./owned.js');
const {split, cancellable, cancelled} = require('./options.js');
const {Device} = require('./device.js');
const {Model, makeModel} = require('./model.js');
const {createQuantizer} = require('./quantizer.js');
const {createTrainer} = require('./trainer.js');
const {Session} = require('./session.js');
const operators = require('./operator.js');
const tensors = require('./tensor.js');
const values = require('./value.js');

// What an ONNX file or its bytes are for the functions that take both.
const isPath = (source) => typeof source === 'string';

// Devices, memory pools and threads.
class Runtime extends Owned {
  #home;
  #hasOperators = false; // of JavaScript: what loads models is done on this thread

  // Options of evn_runtime_options, and `log`, a function that gets records.
  constructor(options) {
    ready();
    const {log, ...others} = options ?? {};
    super(KEY, api.runtime_create(others, log), api.runtime_release);
    const cpu = new Device(KEY, api.runtime_device_at(idOf(this, Runtime), 0));
    this.#home = {cpu, name: cpu.name};
  }

  devices() {
    const id = idOf(this, Runtime);
    return Array.from({length: api.runtime_device_count(id)}, (_, index) => new Device(KEY, api.runtime_device_at(id, index)));
  }

  // A device by a name of the configuration, "cpu", "gpu", "opencl:0".
  device(name) {
    return new Device(KEY, api.runtime_device_find(idOf(this, Runtime), name));
  }

  describeDevices(format = 'text') {
    return api.runtime_describe_devices(idOf(this, Runtime), format);
  }

  statistics(format = 'text') {
    return api.runtime_get_statistics(idOf(this, Runtime), format);
  }

  // Another configuration: {configPath} or {configText}, with timeout, deadline and signal.
  async reconfigure(options) {
    const id = idOf(this, Runtime);
    const {raw, signal} = split(options);
    await cancellable(signal, (cancel) => api.runtime_reconfigure_promised(id, {...raw, cancel}));
  }

  // Measures what steps and copies take, of a model or of all operators.
  async calibrate(model, options) {
    const id = idOf(this, Runtime);
    const {raw, signal} = split(options);
    const {format = 'text', ...others} = raw ?? {};
    if (model === undefined || model === null) throw new TypeError('a Model is wanted, or "all" for all operators');
    const which = model === 'all' ? null : idOf(model, Model);
    return cancellable(signal, (cancel) => api.runtime_calibrate_promised(id, which, {...others, cancel}, format));
  }

  // What a model needs, also one that cannot be loaded. Options: shapes, externalDir, format.
  async inspect(source, options) {
    const {format = 'text', ...others} = options ?? {};
    return api.model_inspect_promised(idOf(this, Runtime), isPath(source) ? source : null, isPath(source) ? others : {...others, data: source}, format);
  }

  // A model of an ONNX file or its bytes.
  async loadModel(source, options) {
    return this.#load(idOf(this, Runtime), source, options);
  }

  async #load(id, source, options) {
    const {raw, signal} = split(options);
    if (this.#hasOperators) {
      if (signal?.aborted) throw cancelled(signal);
      return makeModel((isPath(source) ? api.model_load_file : api.model_load_buffer)(id, source, raw));
    }
    const load = isPath(source) ? api.model_load_file_promised : api.model_load_buffer_promised;
    return makeModel(await cancellable(signal, (cancel) => load(id, source, {...raw, cancel})));
  }

  loadModelSync(source, options) {
    const {raw, signal} = split(options);
    if (signal !== undefined) throw new TypeError('loadModelSync blocks, and no signal could reach it: loadModel takes one');
    return makeModel((isPath(source) ? api.model_load_file : api.model_load_buffer)(idOf(this, Runtime), source, raw));
  }

  // A session of a model, or of a file or bytes that are loaded for it, with loadModel's externalDir, allowedRoots and flags.
  async createSession(model, options) {
    return inUse(this, Runtime, async (id) => {
      if (model instanceof Model) return this.#create(id, model, options);
      const {raw, signal} = split(options);
      const {externalDir, allowedRoots, flags, ...others} = options ?? {};
      const {deadlineNs} = raw ?? {};
      const loaded = await this.#load(id, model, {externalDir, allowedRoots, flags, signal, deadline: deadlineNs});
      try {
        return await this.#create(id, loaded, {...others, timeout: undefined, deadline: deadlineNs});
      } finally {
        loaded.close();
      }
    });
  }

  async #create(id, model, options) {
    const of = idOf(model, Model);
    const {raw, signal} = split(options);
    if (this.#hasOperators) {
      if (signal?.aborted) throw cancelled(signal);
      return new Session(KEY, api.session_create(id, of, raw), this.#home);
    }
    return new Session(KEY, await cancellable(signal, (cancel) => api.session_create_promised(id, of, {...raw, cancel})), this.#home);
  }

  createSessionSync(model, options) {
    const {raw, signal} = split(options);
    if (signal !== undefined) throw new TypeError('createSessionSync blocks, and no signal could reach it: createSession takes one');
    return new Session(KEY, api.session_create(idOf(this, Runtime), idOf(model, Model), raw), this.#home);
  }

  // The session of a name in the configuration's `models`.
  async session(name) {
    const id = idOf(this, Runtime);
    return new Session(KEY, this.#hasOperators ? api.runtime_session(id, name) : await api.runtime_session_promised(id, name), this.#home);
  }

  // Adds an operator to those that models which are loaded from now on may use; lib/operator.js has what it is.
  registerOperator(definition) {
    operators.register(idOf(this, Runtime), definition);
    this.#hasOperators = true;
  }

  // A quantizer of a model's file or bytes. Options: progress, a function of (what, done, total), and those of evn_quantizer_options.
  async quantizer(source, options) {
    return createQuantizer(idOf(this, Runtime), source, options);
  }

  // A trainer of a model's file or bytes. Options: signal, and those of evn_trainer_options but for the host's sum over ranks.
  async trainer(source, options) {
    return createTrainer(idOf(this, Runtime), this.#home, source, options);
  }

  // A tensor with a copy of a typed array, of a list of numbers (dtype says of what) or of strings. Options: device, pinned.
  tensor(data, dims, dtype, {device} = {}) {
    return tensors.from(this.#home, this.#deviceId(device), data, dims, dtype);
  }

  zeros(dtype, dims, {device, pinned = false} = {}) {
    return tensors.zeros(this.#home, this.#deviceId(device), dtype, dims, pinned ? 1 : 0);
  }

  // A tensor over a typed array's own memory.
  wrap(array, dims, dtype) {
    return tensors.wrap(this.#home, idOf(this, Runtime), array, dims, dtype);
  }

  // A sequence, an optional or a map of values.
  value(type, parts) {
    return values.create(this.#home, idOf(this, Runtime), type, parts);
  }

  #deviceId(device) {
    idOf(this, Runtime);
    return idOf(device ?? this.#home.cpu, Device);
  }
}

module.exports = {Runtime};

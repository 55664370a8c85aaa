'use strict';
const {api} = require('./native.js');
const {KEY, Owned, idOf} = require('./owned.js');
const {split, cancelled} = require('./options.js');
const {makeModel} = require('./model.js');
const {lentId} = require('./tensor.js');
const {Token} = require('./token.js');

// A model that is being quantized. All its calls give promises, and wait for each other.
class Quantizer extends Owned {
  #token;
  #signal;
  #count;

  constructor(key, id, token, signal) {
    super(key, id, api.quantizer_release);
    this.#token = token;
    this.#signal = signal;
    this.#count = api.quantizer_input_count(id);
  }

  close() {
    super.close();
    this.#token.close();
  }

  // What a call gives that takes tensors, or nothing.
  async #told(call, inputs) {
    const copies = [];
    const slots = inputs === undefined ? [] : [this.#slots(inputs, copies)];
    try {
      return await call(idOf(this, Quantizer), ...slots);
    } catch (error) {
      if (this.#signal?.aborted && error.status === 'EVN_ERROR_CANCELLED') error.cause = this.#signal.reason;
      throw error;
    } finally {
      copies.forEach((copy) => copy.close());
    }
  }

  #slots(inputs, copies) {
    if (Array.isArray(inputs)) return inputs.map((tensor) => lentId(tensor, copies));
    const list = new Array(this.#count).fill(null);
    for (const [name, tensor] of Object.entries(inputs)) list[api.quantizer_find_input(idOf(this, Quantizer), name)] = lentId(tensor, copies);
    return list;
  }

  // Runs the float32 model over one batch of calibration.
  async addBatch(inputs) {
    await this.#told(api.quantizer_add_batch_promised, inputs);
  }

  // Takes back layers that are not worth it.
  async guard(inputs, options) {
    await this.#told((id, slots) => api.quantizer_guard_promised(id, slots, options), inputs);
  }

  // The quantized model.
  async finish() {
    return makeModel(await this.#told(api.quantizer_finish_promised));
  }

  async save(path) {
    await this.#told((id) => api.quantizer_save_promised(id, path));
  }

  // Adds to the report how far the outputs of both models are apart, and their times.
  async verify(inputs) {
    await this.#told(api.quantizer_verify_promised, inputs);
  }

  report(format = 'text') {
    return api.quantizer_report(idOf(this, Quantizer), format);
  }
}

// A quantizer of a model's file or bytes.
async function createQuantizer(runtimeId, source, options) {
  const {raw, signal} = split(options);
  if (signal?.aborted) throw cancelled(signal);
  const {progress, ...others} = raw ?? {};
  const token = new Token(KEY, signal);
  try {
    const all = {...others, cancel: idOf(token, Token), ...(typeof source === 'string' ? {} : {data: source})};
    return new Quantizer(KEY, await api.quantizer_create_promised(runtimeId, typeof source === 'string' ? source : null, all, progress), token, signal);
  } catch (error) {
    token.close();
    if (signal?.aborted && error.status === 'EVN_ERROR_CANCELLED') error.cause = signal.reason;
    throw error;
  }
}

module.exports = {Quantizer, createQuantizer};

'use strict';
const {api} = require('./native.js');
const {KEY, Owned, idOf, inUse} = require('./owned.js');
const {split, cancelled} = require('./options.js');
const {makeModel} = require('./model.js');
const {Tensor, lentId} = require('./tensor.js');
const {Token} = require('./token.js');

// What a call is given until it has ended: holds of its own on the tensors' memory, so that the caller may close them meanwhile.
class Batch {
  #copies = [];
  #held = [];

  constructor(inputs, labels) {
    try {
      const isList = Array.isArray(inputs);
      if (!isList && (typeof inputs !== 'object' || inputs === null || inputs instanceof Owned)) throw new TypeError('inputs are an array of tensors, or an object by names');
      this.names = isList ? null : Object.keys(inputs);
      this.inputs = (isList ? inputs : Object.values(inputs)).map((tensor) => this.#hold(tensor));
      this.labels = labels === undefined || labels === null ? null : this.#hold(labels);
    } catch (error) {
      this.end();
      throw error;
    }
  }

  #hold(tensor) {
    const id = api.tensor_create_view(lentId(tensor, this.#copies), 0, tensor.dims);
    this.#held.push(id);
    return id;
  }

  end() {
    for (const id of this.#held) api.tensor_release(id);
    for (const copy of this.#copies) copy.close();
  }
}

// A model that is being trained. All its calls give promises, and are made one after the other, in the order in which they were asked for.
class Trainer extends Owned {
  #token;
  #signal;
  #home;
  #places = new Map();
  #last = Promise.resolve();
  #waiting = 0;

  constructor(key, id, home, token, signal) {
    super(key, id, api.trainer_release);
    this.#home = home;
    this.#token = token;
    this.#signal = signal;
  }

  close() {
    super.close();
    this.#token.close();
  }

  // What a call gives, once those before it have ended: at once, where there are none.
  async #turn(call) {
    idOf(this, Trainer);
    const made = async () => {
      try {
        return await inUse(this, Trainer, call);
      } finally {
        this.#waiting--;
      }
    };
    const outcome = this.#waiting++ === 0 ? made() : this.#last.then(made);
    this.#last = outcome.catch(() => {});
    try {
      return await outcome;
    } catch (error) {
      if (this.#signal?.aborted && error.status === 'EVN_ERROR_CANCELLED') error.cause = this.#signal.reason;
      throw error;
    }
  }

  // The slots of a batch in the model's order.
  #slots(id, batch) {
    if (batch.names === null) return batch.inputs;
    const list = new Array(api.trainer_input_count(id)).fill(null);
    batch.names.forEach((name, at) => {
      if (!this.#places.has(name)) this.#places.set(name, api.trainer_find_input(id, name));
      list[this.#places.get(name)] = batch.inputs[at];
    });
    return list;
  }

  async #given(call, inputs, labels) {
    idOf(this, Trainer);
    const batch = new Batch(inputs, labels);
    try {
      return await this.#turn((id) => call(id, this.#slots(id, batch), batch.labels));
    } finally {
      batch.end();
    }
  }

  // Learns from one batch, of tensors in the model's order or by their names. Labels are as the loss says; none with the loss "output".
  async step(inputs, labels) {
    const {skipped, ...info} = await this.#given(api.trainer_step_promised, inputs, labels);
    return {...info, skipped: skipped !== 0};
  }

  // Compares the model as it is in use with labels. Nothing is learned.
  async evaluate(inputs, labels) {
    const {loss, correct, count} = await this.#given(api.trainer_evaluate_promised, inputs, labels);
    return {loss, correct, count, accuracy: count === 0 ? null : Number(correct) / Number(count)};
  }

  // Tells the schedule "plateau" what is to fall.
  async noteMetric(value) {
    await this.#turn((id) => api.trainer_note_metric_promised(id, value));
  }

  // Another rate in the place of the options', from the next step on.
  async setLearningRate(rate) {
    await this.#turn((id) => api.trainer_set_learning_rate_promised(id, rate));
  }

  // Copies of the parameters that learn, by their names.
  async parameters() {
    return this.#parts('value');
  }

  // Copies of their gradients in the last step, before clipping.
  async gradients() {
    return this.#parts('gradient');
  }

  async #parts(part) {
    return this.#turn(async (id) => {
      const made = {};
      try {
        const count = api.trainer_parameter_count(id);
        for (let at = 0; at < count; at++) {
          const name = api.trainer_parameter_name(id, at);
          const value = new Tensor(KEY, await api.trainer_get_parameter_promised(id, at, part), this.#home);
          Object.defineProperty(made, name, {value, enumerable: true, configurable: true, writable: true});
        }
        return made;
      } catch (error) {
        for (const tensor of Object.values(made)) tensor.close();
        throw error;
      }
    });
  }

  // Writes all that training needs to go on with the same bits.
  async save(path) {
    await this.#turn((id) => api.trainer_save_promised(id, path));
  }

  // Takes what save wrote.
  async restore(path) {
    await this.#turn((id) => api.trainer_restore_promised(id, path));
  }

  // The trained model.
  async finish() {
    return makeModel(await this.#turn(api.trainer_finish_promised));
  }

  // Writes it as an ONNX file.
  async export(path) {
    await this.#turn((id) => api.trainer_export_promised(id, path));
  }

  // What is trained, and how it went.
  async describe(format = 'text') {
    return this.#turn((id) => api.trainer_describe_promised(id, format));
  }
}

// A trainer of a model's file or bytes.
async function createTrainer(runtimeId, home, source, options) {
  for (const name of ['timeout', 'deadline']) {
    if (options?.[name] !== undefined) throw new TypeError(`there is no option ${name}: signal ends a trainer's calls`);
  }
  if (options?.plateauPatience === 2 ** 32 - 1) throw new TypeError('plateauPatience is 4294967295: a whole number up to 4294967294 is wanted');
  const {raw, signal} = split(options);
  if (signal?.aborted) throw cancelled(signal);
  const token = new Token(KEY, signal);
  try {
    const all = {...raw, cancel: idOf(token, Token), ...(typeof source === 'string' ? {} : {data: source})};
    return new Trainer(KEY, await api.trainer_create_promised(runtimeId, typeof source === 'string' ? source : null, all), home, token, signal);
  } catch (error) {
    token.close();
    if (signal?.aborted && error.status === 'EVN_ERROR_CANCELLED') error.cause = signal.reason;
    throw error;
  }
}

module.exports = {Trainer, createTrainer};

'use strict';
const {api, scratch} = require('./native.js');
const {invalid} = require('./error.js');
const {KEY, Owned, idOf} = require('./owned.js');
const {split, cancellable} = require('./options.js');
const {describe} = require('./model.js');
const {Request} = require('./request.js');
const {State, createState} = require('./state.js');
const {Tensor, isBorrowed, lentId, liveId, MOVABLE} = require('./tensor.js');
const {Value} = require('./value.js');

const NOTHING = {raw: undefined, signal: undefined, wanted: undefined};

// Where the scratch has the slots of tensors: before them stand the session's slot and the numbers of inputs and outputs.
const FIRST = 3;

const missing = (what, ends, place) => invalid(`there is no tensor for the ${what} ${ends.names[place] ?? place}`);

// Writes slots of tensors from a place of the scratch on; what is nothing is -1, where a state or the options say that it may be.
function fill(tensors, from, what, ends, raw) {
  const count = tensors.length;
  if (FIRST + from + count > scratch.length) throw invalid(`${from + count} tensors: at most ${scratch.length - FIRST} are taken`);
  for (let i = 0; i < count; i++) {
    const tensor = tensors[i];
    if (tensor === undefined || tensor === null) {
      if (i < ends.names.length && raw?.state === undefined && !raw?.skippedOutputs?.[i]) throw missing(what, ends, i);
      scratch[FIRST + from + i] = -1;
    } else {
      scratch[FIRST + from + i] = liveId(tensor);
    }
  }
  return from + count;
}

function run(id, inputs, outputs, raw) {
  scratch[0] = id;
  scratch[1] = inputs;
  scratch[2] = outputs;
  if (raw === undefined) api.session_run();
  else api.session_run(raw);
}

// A model placed and compiled on devices.
class Session extends Owned {
  #home;
  #inputs; // {names, places: Map}
  #outputs;
  #underWay = new Set();

  constructor(key, id, home) {
    super(key, id, api.session_release);
    this.#home = home;
    const ends = (count, name) => {
      const names = Array.from({length: count}, (_, index) => name(id, index));
      return {names, places: new Map(names.map((each, place) => [each, place]))};
    };
    this.#inputs = ends(api.session_input_count(id), api.session_input_name);
    this.#outputs = ends(api.session_output_count(id), api.session_output_name);
  }

  inputs() {
    const id = idOf(this, Session);
    return describe(id, this.#inputs.names.length, api.session_get_input_info, api.session_input_name);
  }

  // Inputs that need not be given, since they have a default: they follow the others, and null stands for a default.
  defaults() {
    const id = idOf(this, Session);
    const first = this.#inputs.names.length;
    return describe(id, api.session_default_count(id), api.session_get_input_info, api.session_input_name, undefined, first);
  }

  outputs() {
    const id = idOf(this, Session);
    return describe(id, this.#outputs.names.length, api.session_get_output_info, api.session_output_name);
  }

  // Objects in the model's order, of a list or by their names; `find` says which names there are.
  #ordered(given, ends, find) {
    if (Array.isArray(given)) return given;
    if (typeof given !== 'object' || given === null || given instanceof Owned) throw new TypeError('tensors are an array, or an object by names');
    const list = new Array(ends.names.length).fill(null);
    for (const [name, each] of Object.entries(given)) list[ends.places.get(name) ?? find(idOf(this, Session), name)] = each;
    return list;
  }

  // Options of runs for the library.
  #runOptions(options) {
    if (options === undefined) return NOTHING;
    const {raw, signal} = split(options, true);
    if (raw === undefined) return NOTHING;
    const {outputs, state, skippedOutputs, ...others} = raw;
    if (skippedOutputs !== undefined) throw new TypeError('there is no option skippedOutputs: outputs names those that are wanted');
    if (others.flags?.includes?.('overwrite_inputs')) throw new TypeError('overwrite_inputs is not for this language: arrays may share the memory');
    if (typeof others.allowCopies === 'boolean') others.allowCopies = Number(others.allowCopies);
    if (state !== undefined) others.state = idOf(state, State);
    if (outputs !== undefined) {
      const skipped = new Uint8Array(this.#outputs.names.length).fill(1);
      for (const name of outputs) skipped[this.#outputs.places.get(name) ?? api.session_find_output(idOf(this, Session), name)] = 0;
      others.skippedOutputs = skipped;
    }
    return {raw: others, signal};
  }

  // Outputs as an array, or by their names where the inputs were.
  #named(made, given) {
    if (Array.isArray(given)) return made;
    const object = {};
    made.forEach((each, place) => { if (each !== null) object[this.#outputs.names[place]] = each; });
    return object;
  }

  // Runs the model once and blocks until the outputs are there: tensors in the model's order, or by names where the inputs are.
  run(inputs, options) {
    const id = idOf(this, Session);
    const {raw, signal} = this.#runOptions(options);
    if (signal !== undefined) throw new TypeError('run blocks, and no signal could reach it: submit takes one');
    const count = fill(this.#ordered(inputs, this.#inputs, api.session_find_input), 0, 'input', this.#inputs, raw);
    const outputs = this.#outputs.names.length;
    const first = FIRST + count;
    if (first + outputs > scratch.length) throw invalid(`${count + outputs} tensors: at most ${scratch.length - FIRST} are taken`);
    scratch.fill(-1, first, first + outputs);
    run(id, count, outputs, raw);
    const slots = Array.from(scratch.subarray(first, first + outputs));
    return this.#named(slots.map((slot) => (slot === -1 ? null : new Tensor(KEY, slot, this.#home))), inputs);
  }

  // Runs the model into tensors that there are: nothing is made.
  runInto(inputs, outputs, options) {
    const id = idOf(this, Session);
    const {raw, signal} = options === undefined ? NOTHING : this.#runOptions(options);
    if (signal !== undefined) throw new TypeError('runInto blocks, and no signal could reach it: submit takes one');
    const count = fill(Array.isArray(inputs) ? inputs : this.#ordered(inputs, this.#inputs, api.session_find_input), 0, 'input', this.#inputs, raw);
    const targets = Array.isArray(outputs) ? outputs : this.#ordered(outputs, this.#outputs, api.session_find_output);
    const end = fill(targets, count, 'output', this.#outputs, raw);
    run(id, count, end - count, raw);
  }

  // Runs of models that take or give more than tensors.
  runValues(inputs, options) {
    const id = idOf(this, Session);
    const {raw, signal} = this.#runOptions(options);
    if (signal !== undefined) throw new TypeError('runValues blocks, and no signal could reach it: submitValues takes one');
    const list = this.#ordered(inputs, this.#inputs, api.session_find_input).map((value) => value && idOf(value, Value));
    const made = api.session_run_values(id, list, this.#outputs.names.map(() => null), raw);
    return this.#named(Array.from(made, (slot) => (slot === undefined ? null : new Value(KEY, slot, this.#home))), inputs);
  }

  // A request of what `prepare` says: {signal, start, finish}. What fails there is the request's error, too.
  #request(prepare) {
    let promise;
    const request = new Request((cancel) => {
      promise = (async () => {
        const {signal, start, finish} = prepare();
        return finish(await cancellable(signal, start, cancel));
      })();
      return promise;
    });
    const settled = promise.then(() => {}, () => {}); // who has the request is told of errors
    this.#underWay.add(settled);
    settled.then(() => this.#underWay.delete(settled));
    return request;
  }

  // Has threads of the library's run the model: a promise of the outputs. `into`: outputs that are written in place.
  submit(inputs, options) {
    return this.#request(() => {
      const id = idOf(this, Session);
      const {into, ...others} = options ?? {};
      const {raw, signal} = this.#runOptions(others);
      const given = this.#ordered(inputs, this.#inputs, api.session_find_input);
      const targets = into === undefined ? this.#outputs.names.map(() => null) : [...this.#ordered(into, this.#outputs, api.session_find_output)];
      const copies = [];
      const slots = Array.from(given, (tensor, place) => {
        if (tensor !== undefined && tensor !== null) return lentId(tensor, copies);
        if (raw?.state === undefined && place < this.#inputs.names.length) throw missing('input', this.#inputs, place);
        return null;
      });
      // An array's memory that could be freed meanwhile gets its elements at the end.
      const late = (tensor) => MOVABLE && isBorrowed(tensor);
      const places = Array.from(targets, (tensor) => (tensor === undefined || tensor === null || (liveId(tensor), late(tensor)) ? null : liveId(tensor)));
      const start = async (cancel) => {
        try {
          return await api.session_submit(id, slots, places, {...raw, cancel});
        } finally {
          copies.forEach((copy) => copy.close());
        }
      };
      return {signal, start, finish: (made) => {
        const tensors = Array.from(targets, (target, place) => (made[place] === undefined ? target ?? null : new Tensor(KEY, made[place], this.#home)));
        for (const [place, target] of targets.entries()) {
          if (target === undefined || target === null || !late(target)) continue;
          tensors[place].copyInto(target);
          tensors[place].close();
          tensors[place] = target;
        }
        return this.#named(tensors, inputs);
      }};
    });
  }

  // Submits a run of values.
  submitValues(inputs, options) {
    return this.#request(() => {
      const id = idOf(this, Session);
      const {raw, signal} = this.#runOptions(options ?? {});
      const list = Array.from(this.#ordered(inputs, this.#inputs, api.session_find_input), (value) => (value ? idOf(value, Value) : null));
      const targets = this.#outputs.names.map(() => null);
      return {signal, start: (cancel) => api.session_submit_values(id, list, targets, {...raw, cancel}),
        finish: (made) => this.#named(Array.from(targets, (_, place) => (made[place] === undefined ? null : new Value(KEY, made[place], this.#home))), inputs)};
    });
  }

  // The outputs of a stream of inputs, in their order, with up to `concurrency` requests under way. Who leaves the loop cancels them.
  async* stream(inputs, options) {
    const {concurrency = 4, ...others} = options ?? {};
    if (!Number.isInteger(concurrency) || concurrency < 1) throw new TypeError('concurrency is a whole number from 1 on');
    const waiting = [];
    const iterator = inputs[Symbol.asyncIterator]?.() ?? inputs[Symbol.iterator]();
    let open = true;
    try {
      for (;;) {
        while (open && waiting.length < concurrency) {
          const next = await iterator.next();
          if (next.done) {
            open = false;
            break;
          }
          const request = this.submit(next.value, others);
          request.catch(() => {}); // it is told when its turn comes
          waiting.push(request);
        }
        if (waiting.length === 0) return;
        yield await waiting.shift();
      }
    } finally {
      for (const request of waiting) request.cancel();
      const ends = await Promise.allSettled(waiting);
      for (const end of ends) if (end.status === 'fulfilled') for (const tensor of Object.values(end.value)) tensor?.close();
      if (open) await iterator.return?.();
    }
  }

  // Closes the session when the requests that are under way have ended.
  async finish() {
    this.close();
    await Promise.all(this.#underWay);
  }

  state(pairs, options) {
    return createState(idOf(this, Session), pairs, options);
  }

  memoryStats() {
    return api.session_get_memory_stats(idOf(this, Session));
  }

  // Where each node runs, and why.
  explain(format = 'text') {
    return api.session_explain(idOf(this, Session), format);
  }

  // How far the outputs of another session are from this one's, and how long each takes.
  async compare(other, inputs, format = 'text') {
    const copies = [];
    const slots = this.#ordered(inputs, this.#inputs, api.session_find_input).map((tensor) => tensor && lentId(tensor, copies));
    try {
      return await api.session_compare_promised(idOf(this, Session), idOf(other, Session), slots, format);
    } finally {
      copies.forEach((copy) => copy.close());
    }
  }

  traceStart(events = 65536) {
    api.session_trace_start(idOf(this, Session), events);
  }

  traceStop() {
    api.session_trace_stop(idOf(this, Session));
  }

  trace(format = 'json') {
    return api.session_get_trace(idOf(this, Session), format);
  }

  statistics(format = 'text') {
    return api.session_get_statistics(idOf(this, Session), format);
  }
}

if (Symbol.asyncDispose) {
  Object.defineProperty(Session.prototype, Symbol.asyncDispose, {async value() { await this.finish(); }, configurable: true, writable: true});
}

module.exports = {Session};

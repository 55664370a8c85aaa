'use strict';
const {api} = require('./native.js');
const {KEY, Owned, idOf} = require('./owned.js');
const {Tensor, homeOf, isBorrowed, liveId} = require('./tensor.js');

// A tensor, a sequence, an optional or a map.
class Value extends Owned {
  #home;

  constructor(key, id, home) {
    super(key, id, api.value_release);
    this.#home = home;
  }

  // The value that a tensor is. A value never changes: of an array's memory it has a copy.
  static fromTensor(tensor) {
    const id = liveId(tensor);
    if (!isBorrowed(tensor)) return new Value(KEY, api.value_from_tensor(id), homeOf(tensor));
    const copy = tensor.copyTo(homeOf(tensor).cpu);
    try {
      return Value.fromTensor(copy);
    } finally {
      copy.close();
    }
  }

  // As "seq(tensor(int64))".
  get type() {
    return api.value_get_type(idOf(this, Value));
  }

  parts() {
    const id = idOf(this, Value);
    return Array.from({length: api.value_part_count(id)}, (_, index) => new Value(KEY, api.value_part_at(id, index), this.#home));
  }

  // The tensor that it is.
  tensor() {
    return new Tensor(KEY, api.value_get_tensor(idOf(this, Value)), this.#home);
  }
}

function create(home, runtimeId, type, parts) {
  return new Value(KEY, api.value_create(runtimeId, type, Array.from(parts, (part) => idOf(part, Value))), home);
}

module.exports = {Value, create};

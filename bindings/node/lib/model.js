'use strict';
const {api} = require('./native.js');
const {KEY, Owned, idOf} = require('./owned.js');

// The inputs or outputs of a model, with their whole names; `first`: the index of the first.
function describe(id, count, info, name, symbol, first = 0) {
  return Array.from({length: count}, (_, place) => {
    const index = first + place;
    const one = info(id, index);
    const symbols = one.dims === null ? null : one.dims.map((dim, axis) => (symbol === undefined ? one.symbols[axis] : symbol(id, index, axis)));
    return {name: name(id, index), dtype: one.dtype, dims: one.dims, symbols, type: one.type};
  });
}

// An immutable graph and its weights.
class Model extends Owned {
  constructor(key, id) {
    super(key, id, api.model_release);
  }

  inputs() {
    const id = idOf(this, Model);
    return describe(id, api.model_input_count(id), api.model_get_input_info, api.model_input_name, api.model_input_symbol);
  }

  // Inputs that need not be given, since they have a default.
  defaults() {
    const id = idOf(this, Model);
    return describe(id, api.model_default_count(id), api.model_get_input_info, api.model_input_name, api.model_input_symbol, api.model_input_count(id));
  }

  outputs() {
    const id = idOf(this, Model);
    return describe(id, api.model_output_count(id), api.model_get_output_info, api.model_output_name, api.model_output_symbol);
  }

  describe(format = 'text') {
    return api.model_describe(idOf(this, Model), format);
  }

  // The value of a metadata entry; undefined where there is none.
  metadata(key) {
    const id = idOf(this, Model);
    return this.metadataKeys().includes(key) ? api.model_get_metadata(id, key) : undefined;
  }

  metadataKeys() {
    const id = idOf(this, Model);
    return Array.from({length: api.model_metadata_count(id)}, (_, index) => api.model_metadata_key(id, index));
  }
}

module.exports = {Model, describe, makeModel: (id) => new Model(KEY, id)};

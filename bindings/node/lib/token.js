'use strict';
const {api} = require('./native.js');
const {Owned} = require('./owned.js');
const {request, watch} = require('./options.js');

// The token by which all calls of a quantizer or trainer are asked to stop.
class Token extends Owned {
  #unwatch;

  constructor(key, signal) {
    const id = api.cancel_create();
    super(key, id, api.cancel_release);
    this.#unwatch = signal && watch(signal, () => request(id));
  }

  close() {
    this.#unwatch?.();
    super.close();
  }
}

module.exports = {Token};

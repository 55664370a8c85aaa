'use strict';
// Objects that own a handle of the library. JavaScript has the number of a slot of the addon's, in a private field.
const {EvenerError} = require('./error.js');
const {api} = require('./native.js');

const KEY = Symbol('evener'); // who has it may make objects
const registry = new FinalizationRegistry(({release, id}) => release(id));

let idOf;

class Owned {
  #id = -1;
  #release;

  constructor(key, id, release) {
    if (key !== KEY) throw new TypeError('Illegal constructor');
    this.#id = id;
    this.#release = release;
    registry.register(this, {release, id}, this);
  }

  get closed() {
    return this.#id === -1;
  }

  // Closes the object. Runs and promised calls that use the object end normally; a second call does nothing.
  close() {
    const id = this.#id;
    if (id === -1) return;
    this.#id = -1;
    registry.unregister(this);
    this.#release(id);
  }

  static {
    idOf = (object, kind) => {
      if (!(object instanceof kind) || !(#id in object)) throw new TypeError(`a ${kind.name} is wanted`);
      if (object.#id === -1) throw new EvenerError('EVN_ERROR_INVALID_HANDLE', `the ${kind.name} is closed`);
      return object.#id;
    };
  }
}

// Calls an async function with the slot of an object. The handle stays until the promise is settled, also if the object is closed meanwhile.
async function inUse(object, kind, call) {
  const id = idOf(object, kind);
  api.use(id);
  try {
    return await call(id);
  } finally {
    api.end_use(id);
  }
}

// `using` and `await using`, where this Node has them.
if (Symbol.dispose) {
  Object.defineProperty(Owned.prototype, Symbol.dispose, {value() { this.close(); }, configurable: true, writable: true});
}
if (Symbol.asyncDispose) {
  Object.defineProperty(Owned.prototype, Symbol.asyncDispose, {async value() { this.close(); }, configurable: true, writable: true});
}

module.exports = {KEY, Owned, idOf, inUse};

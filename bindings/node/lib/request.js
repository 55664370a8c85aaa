'use strict';

// One run that threads of the library's make: a promise of its outputs, which can be cancelled.
class Request {
  #promise;
  #cancel = null;
  #done = false;

  constructor(start) {
    this.#promise = start((cancel) => { this.#cancel = cancel; }).finally(() => { this.#done = true; });
  }

  // Whether it has ended.
  get done() {
    return this.#done;
  }

  // Asks it to end. The promise is then rejected, unless it had ended before.
  cancel() {
    if (!this.#done) this.#cancel?.();
  }

  then(fulfilled, rejected) {
    return this.#promise.then(fulfilled, rejected);
  }

  catch(rejected) {
    return this.#promise.catch(rejected);
  }

  finally(settled) {
    return this.#promise.finally(settled);
  }

  get [Symbol.toStringTag]() {
    return 'Request';
  }
}

module.exports = {Request};

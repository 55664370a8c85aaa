'use strict';

// What a call of the library came to. `status` is the name of an evn_status, and so is `code`.
class EvenerError extends Error {
  constructor(status, message, {node = '', device = '', bytesRequested = 0, bytesAvailable = 0, cause} = {}) {
    super(message, cause === undefined ? undefined : {cause});
    this.status = status;
    this.code = status;
    this.node = node;
    this.device = device;
    this.bytesRequested = bytesRequested;
    this.bytesAvailable = bytesAvailable;
  }
}
Object.defineProperty(EvenerError.prototype, 'name', {value: 'EvenerError', configurable: true, writable: true});

const invalid = (message) => new EvenerError('EVN_ERROR_INVALID_ARGUMENT', message);

module.exports = {EvenerError, invalid};

'use strict';
const {api} = require('./native.js');
const {KEY, Owned, idOf} = require('./owned.js');

// What one stream keeps from run to run.
class State extends Owned {
  constructor(key, id) {
    super(key, id, api.state_release);
  }

  reset() {
    api.state_reset(idOf(this, State));
  }

  // Another state of the same contents, which goes its own way.
  fork() {
    return new State(KEY, api.state_fork(idOf(this, State)));
  }

  // Positions of the pair at `index`.
  length(index = 0) {
    return api.state_length(idOf(this, State), index);
  }

  truncate(positions) {
    api.state_truncate(idOf(this, State), positions);
  }

  // The contents as bytes, for restore.
  save() {
    return new Uint8Array(api.state_save(idOf(this, State)));
  }

  restore(bytes) {
    api.state_restore(idOf(this, State), bytes);
  }

  describe(format = 'text') {
    return api.state_describe(idOf(this, State), format);
  }
}

const createState = (sessionId, pairs, options) => new State(KEY, api.state_create(sessionId, pairs, options));

module.exports = {State, createState};

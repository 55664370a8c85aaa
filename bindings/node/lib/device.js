'use strict';
const {api} = require('./native.js');
const {KEY, Owned, idOf} = require('./owned.js');

const LARGEST = 2n ** 64n - 1n; // the library's word for no limit

// What has no limit is null.
const limit = (value) => (value === LARGEST ? null : value);

// A device of a runtime.
class Device extends Owned {
  constructor(key, id) {
    super(key, id, api.device_release);
  }

  // What it is, with its whole texts.
  info() {
    const id = idOf(this, Device);
    return {...api.device_get_info(id), description: api.device_description(id), driver: api.device_driver(id)};
  }

  get name() {
    return api.device_get_info(idOf(this, Device)).name;
  }

  // Why it cannot be used, or "".
  condition() {
    return api.device_condition(idOf(this, Device));
  }

  memoryStats() {
    const stats = api.device_get_memory_stats(idOf(this, Device));
    return {...stats, limit: limit(stats.limit), cacheLimit: limit(stats.cacheLimit)};
  }

  resetMemoryPeak() {
    api.device_reset_memory_peak(idOf(this, Device));
  }

  // The most bytes that the library holds there; null: no limit.
  setMemoryLimit(bytes) {
    api.device_set_memory_limit(idOf(this, Device), bytes === null ? LARGEST : bytes);
  }

  trimMemory() {
    api.device_trim_memory(idOf(this, Device));
  }

  setCachePolicy(bytes, trim = 'never') {
    api.device_set_cache_policy(idOf(this, Device), bytes === null ? LARGEST : bytes, trim);
  }
}

module.exports = {Device};

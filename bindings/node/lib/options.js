'use strict';
// Options of JavaScript (timeout, deadline, signal) as the library has them (deadlineNs, cancel).
const {api} = require('./native.js');
const {EvenerError} = require('./error.js');

const HIDDEN = ['cancel', 'deadlineNs', 'timeoutNs', 'queue'];

// Milliseconds as nanoseconds.
function nanoseconds(milliseconds, name) {
  if (typeof milliseconds !== 'number' || !(milliseconds >= 0)) throw new TypeError(`${name} is a number of milliseconds, from 0 on`);
  if (milliseconds === 0) return 1n;
  return milliseconds >= 9e12 ? 0n : BigInt(Math.max(1, Math.round(milliseconds * 1e6)));
}

// {raw, signal}: the options for the library, and the signal. `relative`: the library has a timeout of its own.
function split(options, relative = false) {
  if (options === undefined || options === null) return {raw: undefined, signal: undefined};
  if (typeof options !== 'object') throw new TypeError('options are an object');
  for (const name of HIDDEN) {
    if (name in options) throw new TypeError(`there is no option ${name}`);
  }
  const {timeout, deadline, signal, ...raw} = options;
  if (signal !== undefined && !(signal instanceof AbortSignal)) throw new TypeError('signal is an AbortSignal');
  if (deadline !== undefined) {
    if (typeof deadline !== 'bigint' || deadline <= 0n) throw new TypeError('deadline is a time of process.hrtime.bigint()');
    raw.deadlineNs = deadline;
  }
  if (timeout !== undefined) {
    const limit = nanoseconds(timeout, 'timeout');
    if (relative) {
      raw.timeoutNs = limit;
    } else if (limit !== 0n) {
      const end = process.hrtime.bigint() + limit;
      raw.deadlineNs = deadline !== undefined && deadline < end ? deadline : end;
    }
  }
  return {raw, signal};
}

function cancelled(signal) {
  return new EvenerError('EVN_ERROR_CANCELLED', 'the signal is aborted', {cause: signal.reason});
}

// Asks what has a token to stop; one that has gone has nothing to be asked.
function request(token) {
  try {
    api.cancel_request(token);
  } catch (error) {
    if (error.status !== 'EVN_ERROR_INVALID_HANDLE') throw error;
  }
}

const watched = new WeakMap(); // signal: {aborts, listener}

// Calls a function when a signal is aborted, until what this gives is called. A signal has one listener, however much is under way.
function watch(signal, abort) {
  if (!watched.has(signal)) {
    const aborts = new Set();
    watched.set(signal, {aborts, listener: () => aborts.forEach((each) => each())});
  }
  const {aborts, listener} = watched.get(signal);
  if (aborts.size === 0) signal.addEventListener('abort', listener);
  aborts.add(abort);
  return () => {
    aborts.delete(abort);
    if (aborts.size === 0) signal.removeEventListener('abort', listener);
  };
}

// Starts something that takes a token, which the signal requests. `started` gets the function that requests it.
async function cancellable(signal, start, started) {
  if (signal?.aborted) throw cancelled(signal);
  const token = api.cancel_create();
  const abort = () => request(token);
  const unwatch = signal && watch(signal, abort);
  started?.(abort);
  try {
    return await start(token);
  } catch (error) {
    if (signal?.aborted && error.status === 'EVN_ERROR_CANCELLED') error.cause = signal.reason;
    throw error;
  } finally {
    unwatch?.();
    api.cancel_release(token);
  }
}

module.exports = {split, cancellable, cancelled, request, watch};

'use strict';
// Finds the addon and the library: nothing is downloaded, and nothing of the library is linked.
const fs = require('node:fs');
const path = require('node:path');
const {EvenerError} = require('./error.js');
const {DECLARATIONS} = require('./raw.js');

const PLATFORM = `${process.platform}-${process.arch}`;

// The folder of the platform package, or null.
function platformFolder() {
  try {
    return path.dirname(require.resolve(`@evener/${PLATFORM}/package.json`));
  } catch {
    return null;
  }
}

function addonFile() {
  const folder = platformFolder();
  const files = [process.env.EVENER_ADDON, folder && path.join(folder, 'evener.node'), path.join(__dirname, '..', 'build', 'evener.node')];
  const file = files.find((each) => each && fs.existsSync(each));
  if (!file) {
    throw new EvenerError('EVN_ERROR_IO', `there is no addon of Evener for ${PLATFORM}: the package @evener/${PLATFORM} is not installed` +
      ' (build.mjs makes one from the sources, and EVENER_ADDON may name one)');
  }
  return path.resolve(file);
}

const addon = addonFile();
const api = require(addon);
if (api.declarations !== DECLARATIONS) {
  throw new EvenerError('EVN_ERROR_VERSION', `${addon} is of another version than this package: expected declarations ${DECLARATIONS}, found ${api.declarations}`);
}
const scratch = new Float64Array(4096);
let opened = null;

const makeError = (status, name, message, node, device, bytesRequested, bytesAvailable) =>
  new EvenerError(name, message, {node, device, bytesRequested, bytesAvailable});

function libraryFile() {
  if (process.env.EVENER_LIBRARY) return process.env.EVENER_LIBRARY;
  const folder = platformFolder();
  const file = folder && path.join(folder, 'libevener.so.0');
  return file && fs.existsSync(file) ? file : 'libevener.so.0';
}

// Opens the library at a path, or under a name that the system's loader finds. A process has one, whatever thread opens it first.
function open(file) {
  if (typeof file !== 'string') throw new TypeError('the path of the library is a string');
  api.open(file, makeError, scratch);
  opened = file;
}

function ready() {
  if (opened === null) open(libraryFile());
  return api;
}

// The library's version, as "0.3.0".
function version() {
  ready();
  return api.version();
}

// What is done to models so that they run faster.
function describePasses(format = 'text') {
  ready();
  return api.describe_passes(format);
}

module.exports = {api, scratch, open, ready, version, describePasses};

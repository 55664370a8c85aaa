// Builds the addon, and the packages that npm gets.
//
// usage: node build.mjs                      build/evener.node, beside this file or in EVENER_ADDON_FOLDER, for this machine
//        node build.mjs --package LIBRARY TO  the addon, and in TO the folders `evener` and `linux-x64` (with the library's file), for npm
//                                            pack
//
// Needed are a compiler of C++17 (CXX, else c++), and the headers of Node (node_api.h): those that are installed with it, Debian's libnode-dev,
// or the folder that NODE_INCLUDE names. Nothing is downloaded. The addon uses version 8 of N-API: one file serves Node 18 and all later ones.
import {spawnSync} from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import {fileURLToPath} from 'node:url';

const HERE = path.dirname(fileURLToPath(import.meta.url));
const INCLUDE = path.join(HERE, '..', '..', 'include');
const OUT = process.env.EVENER_ADDON_FOLDER || path.join(HERE, 'build');

function fail(message) {
  console.error(`build.mjs: ${message}`);
  process.exit(1);
}

function nodeHeaders() {
  const prefix = path.dirname(path.dirname(fs.realpathSync(process.execPath)));
  const folders = [process.env.NODE_INCLUDE, path.join(prefix, 'include', 'node'), '/usr/include/node', '/usr/include/nodejs/src'];
  return folders.find((folder) => folder && fs.existsSync(path.join(folder, 'node_api.h'))) ??
    fail(`there is no node_api.h in ${folders.filter(Boolean).join(', ')}: install libnode-dev, or set NODE_INCLUDE`);
}

function compile() {
  const compiler = process.env.CXX || 'c++';
  const addon = path.join(HERE, 'addon');
  const sources = fs.readdirSync(addon).filter((name) => name.endsWith('.cc')).map((name) => path.join(addon, name));
  fs.mkdirSync(OUT, {recursive: true});
  const made = path.join(OUT, 'evener.node');
  const newest = Math.max(fs.statSync(fileURLToPath(import.meta.url)).mtimeMs, ...fs.readdirSync(addon).map((name) => fs.statSync(path.join(addon, name)).mtimeMs),
    ...fs.readdirSync(path.join(INCLUDE, 'evener')).map((name) => fs.statSync(path.join(INCLUDE, 'evener', name)).mtimeMs));
  if (fs.existsSync(made) && fs.statSync(made).mtimeMs > newest) return made;
  const flags = ['-std=c++17', '-O2', '-fPIC', '-fvisibility=hidden', '-Wall', '-Wextra', '-Werror', '-DNAPI_VERSION=8', ...(process.env.CXXFLAGS ?? '').split(' ').filter(Boolean)];
  // nodelete: Node would unload the addon with the worker that loaded it, while threads of the library's may still be in its callbacks.
  const command = [...flags, '-I', INCLUDE, '-I', nodeHeaders(), '-shared', '-Wl,-z,nodelete', '-pthread', '-o', `${made}.new`, ...sources, '-ldl', '-static-libstdc++', '-static-libgcc'];
  const done = spawnSync(compiler, command, {stdio: 'inherit'});
  if (done.error) fail(`${compiler}: ${done.error.message}`);
  if (done.status !== 0) fail(`${compiler} failed`);
  fs.renameSync(`${made}.new`, made);
  return made;
}

function makePackages(addon, library, to) {
  const main = path.join(to, 'evener');
  const platform = path.join(to, `${process.platform}-${process.arch}`);
  for (const folder of [main, platform]) fs.mkdirSync(folder, {recursive: true});
  for (const name of ['package.json', 'README.md', 'index.mjs', 'index.d.ts', 'index.d.mts', 'lib']) fs.cpSync(path.join(HERE, name), path.join(main, name), {recursive: true});
  fs.cpSync(path.join(HERE, 'npm', path.basename(platform)), platform, {recursive: true});
  fs.copyFileSync(addon, path.join(platform, 'evener.node'));
  fs.copyFileSync(fs.realpathSync(library), path.join(platform, 'libevener.so.0'));
  for (const folder of [main, platform]) {
    for (const name of ['LICENSE', 'NOTICE']) fs.copyFileSync(path.join(HERE, '..', '..', name), path.join(folder, name));
  }
}

const [option, library, to] = process.argv.slice(2);
if (option !== undefined && (option !== '--package' || to === undefined)) fail('usage: node build.mjs [--package LIBRARY TO]');
const addon = compile();
if (option === '--package') makePackages(addon, library, to);

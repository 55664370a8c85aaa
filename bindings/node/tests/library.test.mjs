// How the library is found and opened, and what errors are.
import assert from 'node:assert/strict';
import {spawnSync} from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import test from 'node:test';

import {double, evener, fails, newRuntime, newSession, TESTS} from './common.mjs';

const OPEN = `import('${path.join(TESTS, '..', 'index.mjs')}').then(({default: evener}) => { evener.open(process.argv[1]); return evener.version(); })
  .then((version) => console.log('version', version), (error) => console.log(error.status, error.message))`;

function opened(file, environment = {}) {
  const done = spawnSync(process.execPath, ['-e', OPEN, file], {encoding: 'utf8', env: {...process.env, ...environment}});
  return done.stdout + done.stderr;
}

test('the library has a version and passes', () => {
  assert.match(evener.version(), /^\d+\.\d+\.\d+$/);
  assert.ok(JSON.parse(evener.describePasses('json')));
});

test('one library is open in a process', () => fails('WRONG_STATE', () => {
  evener.version();
  evener.open('/nowhere/libevener.so');
}, /is open in this process already/));

test('a file that is none says so', () => {
  assert.match(opened('/nowhere/libevener.so'), /^EVN_ERROR_IO .*cannot be opened.*nowhere/);
  assert.match(opened('libdl.so.2'), /^EVN_ERROR_VERSION .*no Evener library of version 0\.2 or later/);
  assert.match(opened(process.env.EVENER_LIBRARY), /^version \d/);
});

test('a library of another version says both', (t) => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'evener-'));
  t.after(() => fs.rmSync(folder, {recursive: true}));
  const make = (name, text) => {
    const source = path.join(folder, `${name}.c`);
    const file = path.join(folder, `${name}.so`);
    fs.writeFileSync(source, text);
    const done = spawnSync(process.env.CC ?? 'cc', ['-shared', '-fPIC', '-o', file, source], {encoding: 'utf8'});
    assert.equal(done.status, 0, done.stderr);
    return file;
  };
  const refuses = make('refuses', 'int evn_get_api(unsigned v, const void **a) { return 15; } unsigned evn_version_number(void) { return 0x000105; }');
  assert.match(opened(refuses), /^EVN_ERROR_VERSION .*expected ABI 0\.3\.0, found 0\.1\.5/);
  const short = make('short', 'static unsigned t[2] = {8, 0x000203}; int evn_get_api(unsigned v, const void **a) { *a = t; return 0; }');
  assert.match(opened(short), /^EVN_ERROR_VERSION .*expected ABI 0\.3\.0, found 0\.2\.3/);
  const otherwise = make('otherwise', 'static int no(void) { return 1; } static struct { unsigned size, version; int (*all[400])(void); } t = {3208, 0x300, {[0 ... 399] = no}};' +
    'int evn_get_api(unsigned v, const void **a) { *a = &t; return 0; }');
  assert.match(opened(otherwise), /^EVN_ERROR_VERSION .*expected evn_error at byte 0 with 728 bytes, found it nowhere/);
});

test('a thread that the system refuses is an error', (t) => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'evener-'));
  t.after(() => fs.rmSync(folder, {recursive: true}));
  const file = path.join(folder, 'refuse');
  fs.writeFileSync(`${file}.c`, `#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
int pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*run)(void *), void *with) {
  if (getenv("NO_THREADS")) return EAGAIN;
  int (*next)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
  *(void **)&next = dlsym(RTLD_NEXT, "pthread_create");
  return next(thread, how, run, with);
}`);
  const made = spawnSync(process.env.CC ?? 'cc', ['-shared', '-fPIC', '-o', `${file}.so`, `${file}.c`, '-ldl'], {encoding: 'utf8'});
  assert.equal(made.status, 0, made.stderr);
  const text = `import(${JSON.stringify(path.join(TESTS, 'common.mjs'))}).then(async ({evener, double}) => {
    const runtime = new evener.Runtime({threadCount: 1, cacheDir: ''});
    process.env.NO_THREADS = '1';
    await runtime.loadModel(double()).catch((error) => console.log(error.status));
    delete process.env.NO_THREADS;
    console.log((await runtime.loadModel(double())).inputs().length);
  });`;
  const done = spawnSync(process.execPath, ['-e', text], {encoding: 'utf8', env: {...process.env, LD_PRELOAD: `${file}.so`}});
  assert.equal(done.stdout, 'EVN_ERROR_NO_THREADS\n1\n', done.stderr);
});

test('there are no objects but by the functions that make them', () => {
  for (const kind of [evener.Session, evener.Tensor, evener.Model, evener.Device, evener.State, evener.Value, evener.Quantizer]) {
    assert.throws(() => new kind(1, 2, 3), TypeError);
  }
  assert.throws(() => evener.Session.prototype.run.call({}, []), /a Session is wanted/);
  assert.throws(() => Object.getOwnPropertyDescriptor(evener.Tensor.prototype, 'data').get.call(new evener.EvenerError('', '')), TypeError);
});

test('an option that there is none of is an error that names those there are', async (t) => {
  assert.throws(() => new evener.Runtime({threads: 2}), /there is no option threads: threadCount, configPath/);
  const runtime = newRuntime(t);
  const model = runtime.loadModelSync(double());
  for (const options of [{cancel: 3}, {deadlineNs: 1n}, {queue: 1}]) await assert.rejects(runtime.createSession(model, options), /there is no option/);
  await assert.rejects(runtime.createSession(model, {precision: 'fp8'}), /there is no fp8: default, fp32/);
  await assert.rejects(runtime.createSession(model, {concurrency: 1.5}), /a whole number/);
  await assert.rejects(runtime.createSession(model, {batching: {maxBatsh: 1}}), /there is no option maxBatsh: maxBatch/);
  await assert.rejects(runtime.createSession(model, {deadline: 5}), /hrtime/);
  const session = newSession(t, runtime, double());
  assert.throws(() => session.run([runtime.tensor([1])], {prioritee: 1}), /there is no option prioritee/);
  assert.throws(() => session.run([runtime.tensor([1])], {flags: ['overwrite_inputs']}), /overwrite_inputs/);
  assert.throws(() => session.run([runtime.tensor([1])], {signal: new AbortController().signal}), /submit takes one/);
  assert.throws(() => session.explain('pdf'), /there is no pdf: text, json/);
});

test('errors have what the library says', async (t) => {
  const runtime = newRuntime(t, {cpuMemoryLimitBytes: 1 << 20});
  const failed = await fails('OUT_OF_MEMORY', () => runtime.zeros('float32', [1 << 20]));
  assert.equal(failed.code, failed.status);
  assert.equal(failed.device, 'cpu');
  assert.ok(failed.bytesRequested >= 4 << 20 && failed.bytesAvailable <= 1 << 20);
  assert.equal(failed.name, 'EvenerError');
  assert.ok(failed instanceof Error && failed.stack.includes('library.test.mjs'));
  await fails('INVALID_MODEL', () => runtime.loadModelSync(Buffer.from('nothing')));
  await fails('INVALID_MODEL', runtime.loadModel(Buffer.from('nothing')));
  await fails('IO', runtime.loadModel('/nowhere/model.onnx'), /nowhere/);
  await fails('CONFIG', () => newRuntime(t, {configText: 'devicess: {}'}), /devices/);
  await fails('INVALID_ARGUMENT', () => newRuntime(t, {configText: ''}), /config_size/);
});

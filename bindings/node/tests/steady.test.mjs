// A million small calls, in flat memory; and what the safe layer costs beside the library's own call, which is printed and not judged.
import assert from 'node:assert/strict';
import {spawnSync} from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import test from 'node:test';

import {double, newRuntime, newSession, TESTS} from './common.mjs';

// In a process of its own, without the test runner's hooks on promises, and with a small young generation, which V8 would let grow.
function grown(what) {
  const done = spawnSync(process.execPath, ['--expose-gc', '--max-semi-space-size=2', path.join(TESTS, 'steady.mjs'), what], {encoding: 'utf8'});
  assert.equal(done.status, 0, done.stderr);
  return JSON.parse(done.stdout);
}

const skip = !fs.existsSync('/proc/self/statm') && 'there is no /proc/self/statm';

for (const [what, calls] of [['good', 'a million small calls'], ['bad', 'calls that fail']]) {
  test(`${calls} leave memory as it was`, {skip}, (t) => {
    const more = grown(what);
    t.diagnostic(`more: ${more.process} KiB of the process, ${Math.round(more.heap / 1024)} KiB of the heap, ${more.device} bytes of the device`);
    assert.equal(more.device, 0);
    assert.ok(more.heap < 4 << 20, `${more.heap} bytes more of the heap`);
    assert.ok(more.process < 16 * 1024, `${more.process} KiB more of the process`);
  });
}

const C = `
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "evener/api.h"
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1e9 + t.tv_nsec; }
int main(int count, char **arguments) {
  evn_get_api_function get = (evn_get_api_function)dlsym(dlopen(arguments[1], RTLD_NOW), "evn_get_api");
  const evn_api *evn = NULL;
  if (get(EVN_VERSION_NUMBER, &evn) != EVN_OK) return 1;
  evn_runtime_options options = EVN_RUNTIME_OPTIONS_INIT;
  options.thread_count = 1;
  options.cache_dir = "";
  evn_runtime runtime; evn_model model; evn_session session; evn_tensor x, y; evn_device cpu;
  int64_t one = 1;
  if (evn->runtime_create(&options, &runtime, NULL) || evn->model_load_file(runtime, arguments[2], NULL, &model, NULL) ||
      evn->session_create(runtime, model, NULL, &session, NULL) || evn->runtime_device_at(runtime, 0, &cpu, NULL) ||
      evn->tensor_create(cpu, EVN_DTYPE_FLOAT32, &one, 1, 0, &x, NULL) || evn->tensor_create(cpu, EVN_DTYPE_FLOAT32, &one, 1, 0, &y, NULL)) return 2;
  double best = 1e9;
  evn_error error = EVN_ERROR_INIT;
  for (int round = 0; round < 40; ++round) {
    double begin = now();
    for (int i = 0; i < 2000; ++i) if (evn->session_run(session, &x, 1, &y, 1, NULL, &error)) return 3;
    double each = (now() - begin) / 2000;
    if (each < best) best = each;
  }
  printf("%.0f", best);
  return count == 3 ? 0 : 4;
}`;

test('the cost of a run into given outputs is printed', (t) => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'evener-'));
  t.after(() => fs.rmSync(folder, {recursive: true}));
  const program = path.join(folder, 'bare');
  fs.writeFileSync(`${program}.c`, C);
  fs.writeFileSync(path.join(folder, 'double.onnx'), double());
  const made = spawnSync(process.env.CC ?? 'cc', ['-O2', '-I', path.join(TESTS, '..', '..', '..', 'include'), '-o', program, `${program}.c`, '-ldl'], {encoding: 'utf8'});
  assert.equal(made.status, 0, made.stderr);
  const runtime = newRuntime(t, {threadCount: 1});
  const session = newSession(t, runtime, double());
  const [x, y] = [runtime.tensor([1]), runtime.zeros('float32', [1])];
  const [inputs, outputs] = [[x], [y]];
  let best = Infinity;
  let bare = Infinity;
  for (let round = 0; round < 3; round++) {
    const ran = spawnSync(program, [process.env.EVENER_LIBRARY, path.join(folder, 'double.onnx')], {encoding: 'utf8'});
    assert.equal(ran.status, 0, ran.stderr);
    bare = Math.min(bare, Number(ran.stdout));
    for (let part = 0; part < 40; part++) {
      const begin = process.hrtime.bigint();
      for (let i = 0; i < 2000; i++) session.runInto(inputs, outputs);
      best = Math.min(best, Number(process.hrtime.bigint() - begin) / 2000);
    }
  }
  t.diagnostic(`a run of one node into given outputs: ${bare} ns by C's own call, ${Math.round(best)} ns by Session.runInto`);
  assert.deepEqual(y.read(), Float32Array.of(2));
});

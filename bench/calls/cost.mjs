// As cost.c, in Node: cost.mjs MODEL COUNT.
import {Runtime} from '../../bindings/node/index.mjs';

const [path, count] = [process.argv[2], Number(process.argv[3])];
const runtime = new Runtime({threads: 1, cacheDir: ''});
const session = await runtime.createSession(path);
const inputs = [runtime.zeros('float32', [1])], outputs = [runtime.zeros('float32', [1])];
for (let i = 0; i < count / 5; ++i) session.runInto(inputs, outputs);
const begin = process.hrtime.bigint();
for (let i = 0; i < count; ++i) session.runInto(inputs, outputs);
console.log((Number(process.hrtime.bigint() - begin) / count).toFixed(1));

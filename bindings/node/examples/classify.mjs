// Runs a model on zeros, once by itself and then as several requests, and says where its nodes run.
//
// usage: node classify.mjs MODEL.onnx [CONFIG.yaml]
import {Runtime} from 'evener';

const [path, configPath] = process.argv.slice(2);
if (path === undefined) throw new Error('usage: node classify.mjs MODEL.onnx [CONFIG.yaml]');
const runtime = new Runtime({configPath});
const session = await runtime.createSession(path);

// A dim that the model leaves open is 1 here.
const inputs = {};
for (const {name, dtype, dims} of session.inputs()) {
  inputs[name] = runtime.zeros(dtype, dims.map((dim) => (dim === -1 ? 1 : dim)));
}

const outputs = session.run(inputs);
for (const [name, tensor] of Object.entries(outputs)) console.log(`${name}: ${tensor.dims.join(' x ')}`);

// Where the largest value of the first output is.
const [scores] = Object.values(outputs);
console.log(`largest: ${scores.data.indexOf(scores.data.reduce((a, b) => (a > b ? a : b)))}`);

// Requests run on threads of the library's, and are promises.
const requests = Array.from({length: 4}, () => session.submit(inputs, {timeout: 30_000}));
for (const made of await Promise.all(requests)) for (const tensor of Object.values(made)) tensor.close();
console.log(session.explain());

session.close();
runtime.close();

// Runs a model on zeros, once by itself and then as several requests, and says where its nodes run.
//
// usage: node classify.mjs MODEL.onnx [CONFIG.yaml [SIZE ...]]
import {Runtime} from 'evener';

const [path, configPath, ...sizes] = process.argv.slice(2);
if (path === undefined) throw new Error('usage: node classify.mjs MODEL.onnx [CONFIG.yaml [SIZE ...]]');
const runtime = new Runtime({configPath: configPath || undefined});
const session = await runtime.createSession(path);

// Dims that the model leaves open have the sizes that are given, in their order, else 1 on axis 0 and 128 elsewhere.
const inputs = {};
for (const {name, dtype, dims} of session.inputs()) {
  if (dims === null) throw new Error(`input ${name} has no rank`);
  inputs[name] = runtime.zeros(dtype, dims.map((dim, axis) => (dim !== -1 ? dim : Number(sizes.shift() ?? (axis === 0 ? 1 : 128)))));
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

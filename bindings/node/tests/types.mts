// What TypeScript's compiler takes, and what it refuses: scripts/test_node has it checked, and runs nothing of it.
import evener, {EvenerError, Runtime, Session, Tensor} from '../index.mjs';

declare const signal: AbortSignal;

export async function use(): Promise<string> {
  const runtime = new Runtime({threadCount: 2, configText: 'placement: {default: cpu}', logLevel: 'debug', log: (record) => record.fields['bytes']?.length});
  const session: Session = await runtime.createSession('model.onnx', {precision: 'bf16', batching: {maxBatch: 4}, timeout: 5, signal});
  await runtime.createSession('model.onnx', {allowedRoots: ['/models'], flags: ['map']});
  const x: Tensor = runtime.tensor(new Float32Array(4), [2, 2n]);
  const strings = runtime.tensor(['a', 'b']);
  const [y] = session.run([x], {priority: 3, outputs: ['y']});
  const named: Tensor | undefined = (await session.submit({x}, {deadline: 5n, signal, into: {y: x}}))['y'];
  for await (const {z} of session.stream([{x}], {concurrency: 2})) z?.close();
  for await (const made of session.stream([[x]])) made[0]?.read();
  const quantizer = await runtime.quantizer(new Uint8Array(3), {mode: 'static', flags: ['per_tensor'], progress: (what, done) => void [what, done]});
  await quantizer.addBatch([x]);
  const trainer = await runtime.trainer('model.onnx', {optimizer: 'adamw', groups: [{names: ['*.b'], rateFactor: 2}], flags: ['nesterov'], seed: 7n, signal});
  const {loss, skipped} = await trainer.step({x}, strings);
  const share: number | null = (await trainer.evaluate([x])).accuracy;
  for (const [name, value] of Object.entries(await trainer.gradients())) if (skipped) throw new Error(`${name} ${value.dims} ${loss} ${share}`);
  // @ts-expect-error: functions of JavaScript are called in its event loop alone
  await runtime.trainer('model.onnx', {reduce: () => 0});
  // @ts-expect-error: there is no such optimizer
  await runtime.trainer('model.onnx', {optimizer: 'lion'});
  using disposed = runtime.tensor([1]);
  await using other = await runtime.session('mine');
  session.runInto([disposed], [x]);
  other.close();
  const state = session.state([{output: 'total', input: 'sum', capacity: 5n}], {flags: ['float16']});
  session.runInto([x], [x], {state});
  const limit: number | bigint | null = runtime.device('cpu').memoryStats().limit;
  // @ts-expect-error: there is no such option
  new Runtime({threads: 2});
  // @ts-expect-error: nor such a word
  runtime.zeros('float99', [1]);
  // @ts-expect-error: a run that blocks has no signal
  session.run([x], {signal});
  // @ts-expect-error: the library's own times are not for programs
  session.run([x], {deadlineNs: 5n});
  // @ts-expect-error: tensors are made by runtimes
  new Tensor();
  // @ts-expect-error: an array of numbers is no tensor
  session.run([[1, 2]]);
  try {
    quantizer.report('json');
  } catch (error) {
    if (error instanceof EvenerError) return `${error.status} ${error.node} ${error.bytesRequested}`;
  }
  return `${evener.version()} ${y?.dims} ${named?.dtype} ${strings.string(0)} ${limit}`;
}

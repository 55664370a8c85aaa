/// <reference lib="esnext.disposable" />
// Evener for Node: inference of ONNX models over CPU and OpenCL devices. `using` and `await using` need a Node that has Symbol.dispose.
import type * as raw from './lib/raw';

export {constants} from './lib/raw';
export type {
  Arenas, BatchingOptions, Calibration, DeviceClass, DeviceInfo, DeviceKind, DeviceState, Dtype, Format, GuardOptions, InputShape, LogLevel, MemoryPlan,
  Numerics, Precision, Products, QuantizeMode, SessionMemoryStats, StateOptions, StatePair, TensorInfo, Trim,
} from './lib/raw';

/** Opens the library at a path, or under a name that the system's loader finds. Without it, what first needs the library opens what
 * `EVENER_LIBRARY` names, else the platform package's, else the system's. A process has one. */
export function open(path: string): void;

/** The library's version, as "0.3.0". */
export function version(): string;

/** What is done to models so that they run faster. */
export function describePasses(format?: 'text' | 'json'): string;

/** Where and why a call failed. Options and arguments of another kind than they should have are a TypeError. */
export class EvenerError extends Error {
  /** The name of an evn_status, as "EVN_ERROR_IO". */
  readonly status: string;
  /** What `status` is, as errors of Node have it. */
  readonly code: string;
  /** The graph node concerned, or "". */
  readonly node: string;
  /** The device concerned, or "". */
  readonly device: string;
  readonly bytesRequested: number | bigint;
  readonly bytesAvailable: number | bigint;
}

/** 64-bit numbers are numbers where these are exact, else BigInt. */
export type Whole = number | bigint;
export type Dims = readonly Whole[];
export type Elements =
  | Float32Array | Float64Array | Int8Array | Uint8Array | Int16Array | Uint16Array | Int32Array | Uint32Array | BigInt64Array | BigUint64Array;
export type Bytes = ArrayBuffer | ArrayBufferView;

/** What everything has that owns something of the library's. */
interface Owned {
  readonly closed: boolean;
  /** Ends the hold: what uses it goes on. A second call does nothing; another use afterwards is an error. */
  close(): void;
  [Symbol.dispose](): void;
  [Symbol.asyncDispose](): Promise<void>;
}

/** How long something may take. */
export interface Limits {
  /** Milliseconds from now on. */
  timeout?: number;
  /** A time of process.hrtime.bigint(). */
  deadline?: bigint;
}

export interface Cancellable extends Limits {
  signal?: AbortSignal;
}

type Without<T> = Omit<T, 'deadlineNs' | 'timeoutNs' | 'skippedOutputs'>;

export interface LogRecord extends Omit<raw.LogRecord, 'fields'> {
  readonly fields: Readonly<Record<string, string>>;
}

export interface RuntimeOptions extends raw.RuntimeOptions {
  /** Gets the records of the log. The runtime has the function until it has ended. */
  log?: (record: LogRecord) => void;
}

export interface RunOptions extends Omit<Without<raw.RunOptions>, 'allowCopies' | 'flags'>, Limits {
  allowCopies?: boolean;
  flags?: readonly 'outputs_on_device'[];
  /** Names of the outputs that are wanted; the others are not computed where nothing needs them. */
  outputs?: readonly string[];
  state?: State;
}

export interface SubmitOptions<T> extends RunOptions {
  signal?: AbortSignal;
  /** Outputs that are written in place. */
  into?: T;
}

export type ModelOptions = Without<raw.ModelOptions> & Limits;
export type FileOptions = Pick<ModelOptions, 'externalDir' | 'allowedRoots' | 'flags'>;
export type SessionOptions = Without<raw.SessionOptions> & Limits;
export type ReconfigureOptions = Without<raw.ReconfigureOptions> & Cancellable;
export type QuantizerOptions = Omit<Without<raw.QuantizerOptions>, 'data'> & Cancellable & {progress?: (what: string, done: Whole, total: Whole) => void};
/** `signal` ends the trainer's steps and evaluations, for good. */
export type TrainerOptions = Omit<raw.TrainerOptions, 'data'> & {signal?: AbortSignal};
export type InspectOptions = Omit<raw.InspectOptions, 'data'> & {format?: 'text' | 'json'};
export type MemoryStats = Omit<raw.MemoryStats, 'limit' | 'cacheLimit'> & {readonly limit: Whole | null; readonly cacheLimit: Whole | null};

export interface InputInfo {
  readonly name: string;
  readonly dtype: raw.Dtype;
  /** -1: known only when it runs. null: the rank is. */
  readonly dims: Whole[] | null;
  readonly symbols: string[] | null;
  readonly type: string;
}

/** Devices, memory pools and threads. */
export class Runtime implements Owned {
  constructor(options?: RuntimeOptions);
  readonly closed: boolean;
  close(): void;
  [Symbol.dispose](): void;
  [Symbol.asyncDispose](): Promise<void>;
  devices(): Device[];
  /** A device by a name of the configuration, "cpu", "gpu", "opencl:0". */
  device(name: string): Device;
  describeDevices(format?: 'text' | 'json'): string;
  statistics(format?: 'text' | 'json' | 'prometheus'): string;
  /** Another configuration, for all sessions. */
  reconfigure(options?: ReconfigureOptions): Promise<void>;
  /** Measures what steps and copies take. */
  calibrate(model: Model | 'all', options?: Cancellable & {format?: 'text' | 'json'}): Promise<string>;
  /** What a model needs, also one that cannot be loaded. */
  inspect(source: string | Bytes, options?: InspectOptions): Promise<string>;
  /** A model of a file or of bytes. */
  loadModel(source: string | Bytes, options?: ModelOptions & Cancellable): Promise<Model>;
  loadModelSync(source: string | Bytes, options?: ModelOptions): Model;
  /** A session of a model, or of a file or bytes. */
  createSession(model: Model, options?: SessionOptions & Cancellable): Promise<Session>;
  createSession(source: string | Bytes, options?: SessionOptions & Cancellable & FileOptions): Promise<Session>;
  createSessionSync(model: Model, options?: SessionOptions): Session;
  /** The session of a name in the configuration's `models`. */
  session(name: string): Promise<Session>;
  /**
   * Adds an operator to those that models which are loaded from now on may use. Its functions are called on this thread, inside of loading and
   * running: models of this runtime are loaded on it from now on, and those with such an operator are run, not submitted.
   */
  registerOperator(definition: OperatorDefinition): void;
  quantizer(source: string | Bytes, options?: QuantizerOptions): Promise<Quantizer>;
  trainer(source: string | Bytes, options?: TrainerOptions): Promise<Trainer>;
  /** A tensor with a copy of the elements, of one axis where no dims are given. Numbers of a list are float32 where no dtype is. */
  tensor(data: Elements | readonly number[], dims?: Dims, dtype?: raw.Dtype, where?: {device?: Device}): Tensor;
  tensor(data: readonly string[], dims?: Dims, dtype?: 'string'): Tensor;
  tensor(data: readonly bigint[], dims: Dims | undefined, dtype: 'int64' | 'uint64', where?: {device?: Device}): Tensor;
  zeros(dtype: raw.Dtype, dims: Dims, where?: {device?: Device; pinned?: boolean}): Tensor;
  /** A tensor over the array's own memory, which can be transferred no more. */
  wrap(array: Elements, dims?: Dims, dtype?: raw.Dtype): Tensor;
  /** A sequence, an optional or a map, as "seq(tensor(int64))". */
  value(type: string, parts: Iterable<Value>): Value;
}

/** What is known of a tensor of an operator. `data` is a copy, which is there in `run` and for `valueInputs` whose value is known. */
export interface OperatorInput {
  readonly dtype: raw.Dtype;
  /** -1: not known yet; null: not even the rank is. Both in `infer` only. */
  readonly dims: readonly number[] | null;
  readonly data?: Elements;
}

/** What `run` fills. */
export interface OperatorOutput {
  readonly dtype: raw.Dtype;
  readonly dims: readonly number[];
  readonly data: Elements;
}

export interface OperatorDefinition {
  domain: string;
  name: string;
  sinceVersion?: number;
  /** A count, or [least, most]; Infinity: any number. 1 where nothing is given. */
  inputs?: number | readonly [number, number];
  outputs?: number | readonly [number, number];
  /** Places of inputs whose value decides on shapes. */
  valueInputs?: readonly number[];
  /** Says what the outputs are. An input that is not given is null. */
  infer(node: OperatorNode, inputs: (OperatorInput | null)[], outputCount: number): {dtype: raw.Dtype; dims: readonly number[] | null}[];
  /** Computes. An output that is not wanted is null. What it throws is the error of the run. It must not use other objects of this package. */
  run(node: OperatorNode, inputs: (OperatorInput | null)[], outputs: (OperatorOutput | null)[]): void;
}

/** A node of an operator, to be used until the function that got it returns. */
export class OperatorNode {
  private constructor();
  readonly name: string;
  /** The value of an attribute, or `fallback` where it is not given. */
  attribute(name: string, fallback?: unknown): unknown;
}

export class Device implements Owned {
  private constructor();
  readonly closed: boolean;
  close(): void;
  [Symbol.dispose](): void;
  [Symbol.asyncDispose](): Promise<void>;
  readonly name: string;
  info(): raw.DeviceInfo;
  /** Why it cannot be used, or "". */
  condition(): string;
  memoryStats(): MemoryStats;
  resetMemoryPeak(): void;
  /** The most bytes that the library holds there; null: no limit. */
  setMemoryLimit(bytes: Whole | null): void;
  trimMemory(): void;
  setCachePolicy(bytes: Whole | null, trim?: raw.Trim): void;
}

/** Elements of one dtype on a device, row-major. */
export class Tensor implements Owned {
  private constructor();
  readonly closed: boolean;
  close(): void;
  [Symbol.dispose](): void;
  [Symbol.asyncDispose](): Promise<void>;
  readonly info: raw.TensorInfo;
  readonly dtype: raw.Dtype;
  readonly dims: Whole[];
  readonly device: string;
  /** The memory itself, of a tensor of the CPU: float16 and bfloat16 as their bits, complex numbers as pairs, small elements as bytes. */
  readonly data: Elements;
  /** A copy of the elements, from any device. */
  read(): Elements;
  /** Sets all elements, on any device. */
  write(array: Elements): void;
  strings(): string[];
  string(index: number): string;
  setStrings(strings: readonly string[]): void;
  /** A part of the memory, from the element `first` on. */
  part(first: Whole, dims: Dims): Tensor;
  copyTo(device: Device): Tensor;
  copyInto(target: Tensor): void;
}

/** A tensor, a sequence, an optional or a map. */
export class Value implements Owned {
  private constructor();
  readonly closed: boolean;
  close(): void;
  [Symbol.dispose](): void;
  [Symbol.asyncDispose](): Promise<void>;
  static fromTensor(tensor: Tensor): Value;
  readonly type: string;
  parts(): Value[];
  tensor(): Tensor;
}

/** An immutable graph and its weights. */
export class Model implements Owned {
  private constructor();
  readonly closed: boolean;
  close(): void;
  [Symbol.dispose](): void;
  [Symbol.asyncDispose](): Promise<void>;
  inputs(): InputInfo[];
  /** Inputs that need not be given, since they have a default. */
  defaults(): InputInfo[];
  outputs(): InputInfo[];
  describe(format?: 'text' | 'json'): string;
  metadata(key: string): string | undefined;
  metadataKeys(): string[];
}

export type ByName<T> = Readonly<Record<string, T>>;

/** A model placed and compiled on devices. Inputs and outputs are arrays in the model's order, or objects by their names. */
export class Session implements Owned {
  private constructor();
  readonly closed: boolean;
  close(): void;
  [Symbol.dispose](): void;
  [Symbol.asyncDispose](): Promise<void>;
  /** Closes it when the requests that are under way have ended. */
  finish(): Promise<void>;
  inputs(): InputInfo[];
  /** Inputs that need not be given, since they have a default. */
  defaults(): InputInfo[];
  outputs(): InputInfo[];
  /** Runs the model and blocks until the outputs are there. */
  run(inputs: readonly (Tensor | null)[], options?: RunOptions): Tensor[];
  run(inputs: ByName<Tensor>, options?: RunOptions): Record<string, Tensor>;
  /** Runs the model into tensors that there are: nothing is made. */
  runInto(inputs: readonly (Tensor | null)[] | ByName<Tensor>, outputs: readonly (Tensor | null)[] | ByName<Tensor>, options?: RunOptions): void;
  runValues(inputs: readonly (Value | null)[], options?: RunOptions): Value[];
  runValues(inputs: ByName<Value>, options?: RunOptions): Record<string, Value>;
  /** Has threads of the library's run the model. EVN_ERROR_BUSY where the queue is full: this does not wait. */
  submit(inputs: readonly (Tensor | null)[], options?: SubmitOptions<readonly (Tensor | null)[]>): Request<Tensor[]>;
  submit(inputs: ByName<Tensor>, options?: SubmitOptions<ByName<Tensor>>): Request<Record<string, Tensor>>;
  submitValues(inputs: readonly (Value | null)[], options?: RunOptions & {signal?: AbortSignal}): Request<Value[]>;
  submitValues(inputs: ByName<Value>, options?: RunOptions & {signal?: AbortSignal}): Request<Record<string, Value>>;
  /** The outputs of a stream of inputs, in their order, with `concurrency` requests (4) under way at most. */
  stream(inputs: Iterable<readonly Tensor[]> | AsyncIterable<readonly Tensor[]>, options?: StreamOptions): AsyncGenerator<Tensor[], void, void>;
  stream(inputs: Iterable<ByName<Tensor>> | AsyncIterable<ByName<Tensor>>, options?: StreamOptions): AsyncGenerator<Record<string, Tensor>, void, void>;
  state(pairs: readonly raw.StatePair[], options?: raw.StateOptions): State;
  memoryStats(): raw.SessionMemoryStats;
  /** Where each node runs, and why. */
  explain(format?: 'text' | 'json' | 'dot' | 'svg'): string;
  /** How far the outputs of another session are from this one's, and how long each takes. */
  compare(other: Session, inputs: readonly Tensor[] | ByName<Tensor>, format?: 'text' | 'json'): Promise<string>;
  traceStart(events?: number): void;
  traceStop(): void;
  trace(format?: 'text' | 'json'): string;
  statistics(format?: 'text' | 'json'): string;
}

export type StreamOptions = RunOptions & {signal?: AbortSignal; concurrency?: number};

/** One run that threads of the library's make: a promise of its outputs. */
export class Request<T> implements PromiseLike<T> {
  private constructor();
  readonly done: boolean;
  cancel(): void;
  then<A = T, B = never>(fulfilled?: ((value: T) => A | PromiseLike<A>) | null, rejected?: ((reason: unknown) => B | PromiseLike<B>) | null): Promise<A | B>;
  catch<B = never>(rejected?: ((reason: unknown) => B | PromiseLike<B>) | null): Promise<T | B>;
  finally(settled?: (() => void) | null): Promise<T>;
  readonly [Symbol.toStringTag]: string;
}

/** What one stream keeps from run to run. */
export class State implements Owned {
  private constructor();
  readonly closed: boolean;
  close(): void;
  [Symbol.dispose](): void;
  [Symbol.asyncDispose](): Promise<void>;
  reset(): void;
  fork(): State;
  length(index?: number): Whole;
  truncate(positions: Whole): void;
  save(): Uint8Array;
  restore(bytes: Bytes): void;
  describe(format?: 'text' | 'json'): string;
}

/** A model that is being quantized. Its calls wait for each other. */
export class Quantizer implements Owned {
  private constructor();
  readonly closed: boolean;
  close(): void;
  [Symbol.dispose](): void;
  [Symbol.asyncDispose](): Promise<void>;
  addBatch(inputs: readonly Tensor[] | ByName<Tensor>): Promise<void>;
  guard(inputs: readonly Tensor[] | ByName<Tensor>, options?: raw.GuardOptions): Promise<void>;
  finish(): Promise<Model>;
  save(path: string): Promise<void>;
  verify(inputs: readonly Tensor[] | ByName<Tensor>): Promise<void>;
  report(format?: 'text' | 'json'): string;
}

/** What a step did. */
export interface Step extends Omit<raw.StepInfo, 'skipped'> {
  /** The loss or a gradient is not finite, and nothing has changed. */
  readonly skipped: boolean;
}

/** How good a model is on a batch. */
export interface Evaluation extends raw.Evaluation {
  /** null where the loss has none. */
  readonly accuracy: number | null;
}

/**
 * A model that is being trained. Its calls do not hold up the event loop, and are made one after the other, in the order in which they were asked for;
 * tensors that they are given may be closed meanwhile.
 */
export class Trainer implements Owned {
  private constructor();
  readonly closed: boolean;
  close(): void;
  [Symbol.dispose](): void;
  [Symbol.asyncDispose](): Promise<void>;
  /** Learns from one batch. Labels are as the loss says; none with the loss "output". */
  step(inputs: readonly Tensor[] | ByName<Tensor>, labels?: Tensor | null): Promise<Step>;
  /** Compares the model as it is in use with labels. */
  evaluate(inputs: readonly Tensor[] | ByName<Tensor>, labels?: Tensor | null): Promise<Evaluation>;
  /** Tells the schedule "plateau" what is to fall. */
  noteMetric(value: number): Promise<void>;
  setLearningRate(rate: number): Promise<void>;
  /** Copies of the parameters that learn, by their names. */
  parameters(): Promise<Record<string, Tensor>>;
  /** Copies of their gradients in the last step, before clipping. */
  gradients(): Promise<Record<string, Tensor>>;
  save(path: string): Promise<void>;
  restore(path: string): Promise<void>;
  /** The trained model. */
  finish(): Promise<Model>;
  /** Writes it as an ONNX file. */
  export(path: string): Promise<void>;
  describe(format?: 'text' | 'json'): Promise<string>;
}

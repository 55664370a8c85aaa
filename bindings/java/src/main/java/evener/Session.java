package evener;

import java.lang.ref.Reference;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Executor;

/** A model that is placed and compiled on devices. Several threads may run it at a time. */
public final class Session extends NativeObject {
  private final int inputCount;
  private final int outputCount;

  Session(long handle) {
    super("session", handle, Raw::sessionRelease);
    boolean isMade = false;
    try {
      inputCount = (int) out(Raw::sessionInputCount);
      outputCount = (int) out(Raw::sessionOutputCount);
      isMade = true;
    } finally {
      if (!isMade) close();
    }
  }

  /**
   * Places a model on the runtime's devices, as the configuration's rules say.
   *
   * @param runtime the model's own
   * @param model what is run
   */
  public Session(Runtime runtime, Model model) {
    this(runtime, model, null, null);
  }

  /**
   * Places a model on the runtime's devices, as options and the configuration's rules say. Blocks; allocates.
   *
   * @param runtime the model's own
   * @param model what is run
   * @param options null: as the configuration says
   * @param deadline when it ends; null: never
   * @throws EvenerException with {@link Status#UNSUPPORTED} (a node that no allowed device can run, with every device's reason)
   */
  public Session(Runtime runtime, Model model, SessionOptions options, Deadline deadline) {
    this(create(runtime, model, options == null ? new SessionOptions() : options, deadline));
  }

  private static long create(Runtime runtime, Model model, SessionOptions given, Deadline deadline) {
    Scratch scratch = Scratch.get();
    long mark = scratch.mark();
    try {
      long options = given.write(scratch, deadline);
      return runtime.out((handle, out, error) -> Raw.sessionCreate(handle, model.handle(), options, out, error));
    } finally {
      scratch.release(mark);
      Reference.reachabilityFence(model);
      Reference.reachabilityFence(deadline);
    }
  }

  int outputCount() {
    return outputCount;
  }

  // --------------------------------------------------------------------------------------------------------------- runs

  /**
   * Runs the model once and blocks until the outputs are there.
   *
   * @param inputs in the model's order
   * @return the outputs in its order, on the CPU, which the caller closes
   */
  public Tensor[] run(Tensor... inputs) {
    return run(null, inputs);
  }

  /**
   * Runs the model once and blocks until the outputs are there.
   *
   * @param options how; null: as they are at first
   * @param inputs in the model's order; null for those that a state gives
   * @return the outputs in its order, which the caller closes; null for those that a state takes and those that are not wanted
   */
  public Tensor[] run(RunOptions options, Tensor... inputs) {
    Tensor[] outputs = new Tensor[outputCount];
    runInto(options, inputs, outputs);
    return outputs;
  }

  /**
   * Runs the model once, into tensors that there are.
   *
   * @param options how; null: as they are at first
   * @param inputs in the model's order
   * @param outputs a slot for each output: what is not null is written in place and must have the output's dtype and dims; the others get new tensors,
   *     which the caller closes
   * @throws EvenerException with {@link Status#INVALID_ARGUMENT} (count, dtype, rank or dims do not fit; the message names the input),
   *     {@link Status#OUT_OF_MEMORY}, {@link Status#TIMEOUT}, {@link Status#CANCELLED}, {@link Status#DEVICE_LOST}. No slot changes then; the bytes of given
   *     outputs are undefined
   */
  public void runInto(RunOptions options, Tensor[] inputs, Tensor[] outputs) {
    Scratch scratch = Scratch.get();
    long mark = scratch.mark();
    try {
      long from = scratch.handles(inputs);
      long to = scratch.handles(outputs);
      long raw = RunOptions.write(scratch, options, outputCount, 0);
      long error = scratch.error();
      int status = Raw.sessionRun(handle(), from, inputs.length, to, outputs.length, raw, error);
      if (status != Numbers.EVN_OK) throw scratch.failure(status, error);
      for (int i = 0; i < outputs.length; i++) {
        if (outputs[i] == null) outputs[i] = tensorAt(scratch, to, i);
      }
    } finally {
      scratch.release(mark);
      Reference.reachabilityFence(this);
      Reference.reachabilityFence(inputs);
      Reference.reachabilityFence(outputs);
      RunOptions.fence(options);
    }
  }

  static Tensor tensorAt(Scratch scratch, long handles, int index) {
    long handle = scratch.getLong(handles + 8L * index);
    return handle == 0 ? null : new Tensor(handle);
  }

  static Value valueAt(Scratch scratch, long handles, int index) {
    long handle = scratch.getLong(handles + 8L * index);
    return handle == 0 ? null : new Value(handle);
  }

  /**
   * Runs the model once with inputs by name.
   *
   * @param options how; null: as they are at first
   * @param inputs each of the model's inputs
   * @return the outputs by name, which the caller closes
   */
  public Map<String, Tensor> runNamed(RunOptions options, Map<String, Tensor> inputs) {
    int defaults = (int) out(Raw::sessionDefaultCount);
    Tensor[] given = new Tensor[inputCount + defaults];
    inputs.forEach((name, tensor) -> given[findInput(name)] = tensor);
    List<ValueInfo> infos = inputs();
    for (int i = 0; i < inputCount; i++) {
      if (given[i] == null) throw EvenerException.argument("input '" + infos.get(i).name() + "' is missing");
    }
    Tensor[] outputs = run(options, given);
    Map<String, Tensor> made = new LinkedHashMap<>();
    for (ValueInfo info : outputs()) made.put(info.name(), outputs[made.size()]);
    return made;
  }

  /**
   * Runs a model that takes or gives more than tensors.
   *
   * @param options how; null: as they are at first
   * @param inputs in the model's order
   * @return the outputs in its order, which the caller closes
   */
  public Value[] runValues(RunOptions options, Value... inputs) {
    Scratch scratch = Scratch.get();
    long mark = scratch.mark();
    try {
      long from = scratch.handles(inputs);
      long to = scratch.allocate(8L * outputCount);
      long raw = RunOptions.write(scratch, options, outputCount, 0);
      call((handle, error) -> Raw.sessionRunValues(handle, from, inputs.length, to, outputCount, raw, error));
      Value[] made = new Value[outputCount];
      for (int i = 0; i < made.length; i++) made[i] = valueAt(scratch, to, i);
      return made;
    } finally {
      scratch.release(mark);
      Reference.reachabilityFence(inputs);
      RunOptions.fence(options);
    }
  }

  // ----------------------------------------------------------------------------------------------------------- requests

  /**
   * Has threads of the library run the model, and returns at once. The library keeps the inputs: they may be closed, but not written, before the request
   * has ended.
   *
   * @param options how; null: as they are at first. A timeout counts from now on
   * @param inputs in the model's order
   * @return the request, a future of the outputs
   */
  public Request<Tensor> submit(RunOptions options, Tensor... inputs) {
    return submit(options, null, inputs, new Tensor[outputCount]);
  }

  /**
   * Has threads of the library run the model into tensors that there are, and returns at once.
   *
   * @param options how; null: as they are at first
   * @param executor completes the request, with what is made to depend on it; null: the default one of {@link java.util.concurrent.CompletableFuture}
   * @param inputs in the model's order
   * @param outputs a slot for each output; what is null gets a new tensor
   * @return the request, a future of the outputs
   * @throws EvenerException with {@link Status#INVALID_ARGUMENT}, {@link Status#NO_THREADS}, {@link Status#TIMEOUT} and {@link Status#CANCELLED} (while it
   *     waited for room), {@link Status#BUSY}. All else is the request's own error
   */
  public Request<Tensor> submit(RunOptions options, Executor executor, Tensor[] inputs, Tensor[] outputs) {
    Tensor[] slots = outputs.clone();
    Request<Tensor> request = new Request<>(executor, options, slots, Raw::requestTake, Session::tensorAt);
    request.submit(this, options, inputs, (handle, from, count, to, run, submit, error) -> Raw.sessionSubmit(handle, from, count, to, slots.length, run, submit, 0, error));
    return request;
  }

  /**
   * Has threads of the library run a model that takes or gives more than tensors.
   *
   * @param options how; null: as they are at first
   * @param inputs in the model's order
   * @return the request, a future of the outputs
   */
  public Request<Value> submitValues(RunOptions options, Value... inputs) {
    Value[] slots = new Value[outputCount];
    Request<Value> request = new Request<>(null, options, slots, Raw::requestTakeValues, Session::valueAt);
    request.submit(this, options, inputs, (handle, from, count, to, run, submit, error) -> Raw.sessionSubmitValues(handle, from, count, to, slots.length, run, submit, 0, error));
    return request;
  }

  /**
   * Closes the session and waits until all requests that were submitted to it have ended.
   *
   * @param time at most; null: as long as it takes
   * @return whether they have; where not, the session is closed all the same, and requests go on
   */
  public boolean finish(Duration time) {
    long left = time == null ? -1 : time.isZero() ? 0 : CancelToken.nanoseconds(time);
    boolean isOver = true;
    try {
      call((handle, error) -> Raw.sessionFinish(handle, left, error));
    } catch (EvenerException failure) {
      if (failure.status() != Status.TIMEOUT) throw failure;
      isOver = false;
    }
    forget();
    return isOver;
  }

  // ------------------------------------------------------------------------------------------------------- what it says

  /**
   * Gives the inputs in the order of {@link #run}.
   *
   * @return what they are
   */
  public List<ValueInfo> inputs() {
    return ValueInfo.all(this, inputCount, Raw::sessionGetInputInfo, Raw::sessionInputName, null);
  }

  /**
   * Gives the inputs that need not be given, since they have a default: they follow the others in the order of {@link #run}.
   *
   * @return what they are
   */
  public List<ValueInfo> defaults() {
    return ValueInfo.all(this, inputCount, (int) out(Raw::sessionDefaultCount), Raw::sessionGetInputInfo, Raw::sessionInputName, null);
  }

  /**
   * Gives the outputs in the order of {@link #run}.
   *
   * @return what they are
   */
  public List<ValueInfo> outputs() {
    return ValueInfo.all(this, outputCount, Raw::sessionGetOutputInfo, Raw::sessionOutputName, null);
  }

  /** A function that finds a place. */
  interface FindCall {
    int call(long handle, long name, long index, long error);
  }

  static int find(NativeObject of, String name, FindCall call) {
    Scratch scratch = Scratch.get();
    long mark = scratch.mark();
    try {
      long text = scratch.text(name);
      return (int) of.out((handle, out, error) -> call.call(handle, text, out, error));
    } finally {
      scratch.release(mark);
    }
  }

  /**
   * Gives the place of an input.
   *
   * @param name its name
   * @return from 0 on
   * @throws EvenerException with {@link Status#INVALID_ARGUMENT}; the message lists the names there are
   */
  public int findInput(String name) {
    return find(this, name, Raw::sessionFindInput);
  }

  /**
   * Gives the place of an output.
   *
   * @param name its name
   * @return from 0 on
   * @throws EvenerException with {@link Status#INVALID_ARGUMENT}; the message lists the names there are
   */
  public int findOutput(String name) {
    return find(this, name, Raw::sessionFindOutput);
  }

  /**
   * Writes the placement: for each node its device, kernel, reason and the configuration's line.
   *
   * @param format any but {@link Format#PROMETHEUS}
   * @return the text, whose JSON evn_session_explain of the C API describes
   */
  public String explain(Format format) {
    return text(1 << 14, (buffer, capacity, size, error) -> Raw.sessionExplain(handle(), format.value(), buffer, capacity, size, error));
  }

  /**
   * Runs this session and another over the same inputs, several times each in turns, and writes how far their float32 outputs are apart and how long
   * each takes.
   *
   * @param other whose outputs are looked at
   * @param format {@link Format#TEXT} or {@link Format#JSON}
   * @param inputs of both
   * @return the text
   */
  public String compare(Session other, Format format, Tensor... inputs) {
    Scratch scratch = Scratch.get();
    long mark = scratch.mark();
    try {
      long from = scratch.handles(inputs);
      return text(
          1 << 14,
          (buffer, capacity, size, error) ->
              Raw.sessionCompare(handle(), other.handle(), from, inputs.length, format.value(), buffer, capacity, size, error));
    } finally {
      scratch.release(mark);
      Reference.reachabilityFence(other);
      Reference.reachabilityFence(inputs);
    }
  }

  /**
   * Writes what runs and requests have come to so far.
   *
   * @param format {@link Format#TEXT} or {@link Format#JSON}
   * @return the text
   */
  public String statistics(Format format) {
    return text(1 << 14, (buffer, capacity, size, error) -> Raw.sessionGetStatistics(handle(), format.value(), buffer, capacity, size, error));
  }

  /**
   * Gives what the session holds. Takes its lock for a moment.
   *
   * @return the bytes
   */
  public SessionMemoryStats memoryStats() {
    Scratch scratch = Scratch.get();
    long mark = scratch.mark();
    try {
      long stats = scratch.struct(Layout.SessionMemoryStats.SIZE);
      call((handle, error) -> Raw.sessionGetMemoryStats(handle, stats, error));
      return new SessionMemoryStats(
          scratch.getLong(stats + Layout.SessionMemoryStats.ARENA_BYTES),
          scratch.getLong(stats + Layout.SessionMemoryStats.IDLE_ARENA_BYTES),
          scratch.getLong(stats + Layout.SessionMemoryStats.PEAK_ARENA_BYTES),
          scratch.getLong(stats + Layout.SessionMemoryStats.ARENA_COUNT),
          scratch.getLong(stats + Layout.SessionMemoryStats.ARENAS_MADE),
          scratch.getLong(stats + Layout.SessionMemoryStats.ARENAS_REUSED),
          scratch.getLong(stats + Layout.SessionMemoryStats.ARENAS_DROPPED),
          scratch.getLong(stats + Layout.SessionMemoryStats.PLAN_COUNT),
          scratch.getLong(stats + Layout.SessionMemoryStats.PLAN_BYTES),
          scratch.getLong(stats + Layout.SessionMemoryStats.STATE_BYTES));
    } finally {
      scratch.release(mark);
    }
  }

  /**
   * Has each run from now on record its steps.
   *
   * @param events how many there is room for; later ones are counted, and dropped
   */
  public void traceStart(int events) {
    call((handle, error) -> Raw.sessionTraceStart(handle, events, error));
  }

  /** Ends recording; what was recorded stays until the next start. */
  public void traceStop() {
    call(Raw::sessionTraceStop);
  }

  /**
   * Writes what has been recorded so far.
   *
   * @param format {@link Format#TEXT} (a table by node) or {@link Format#JSON} (for Chrome's and Perfetto's viewers)
   * @return the text
   */
  public String trace(Format format) {
    return text(1 << 16, (buffer, capacity, size, error) -> Raw.sessionGetTrace(handle(), format.value(), buffer, capacity, size, error));
  }
}

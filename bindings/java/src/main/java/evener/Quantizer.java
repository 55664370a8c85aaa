package evener;

import java.lang.ref.Reference;
import java.nio.file.Path;
import java.util.Map;

/** Makes of a float32 model one that computes with 8-bit numbers, on the machine where it is to run. Calls on one wait for each other. */
public final class Quantizer extends NativeObject {
  /** What C hands to the progress: the caller's function, and what it threw, which its call is to throw on. */
  static final class Watch {
    final QuantizerOptions.Progress progress;
    volatile Throwable thrown;

    Watch(QuantizerOptions.Progress progress) {
      this.progress = progress;
    }
  }

  private final Watch watch;

  private Quantizer(long handle, Watch watch) {
    super("quantizer", handle, Raw::quantizerRelease);
    this.watch = watch;
  }

  /**
   * Reads a float32 model and decides which of its nodes are to be quantized.
   *
   * @param runtime where it runs
   * @param path an ONNX file; null: {@link QuantizerOptions#data}
   * @param given how; null: static, from the smallest to the largest value
   * @return the quantizer, which the caller closes
   */
  public static Quantizer open(Runtime runtime, Path path, QuantizerOptions given) {
    QuantizerOptions options = given == null ? new QuantizerOptions() : given;
    Watch watch = new Watch(options.progress());
    Scratch scratch = Scratch.get();
    long mark = scratch.mark();
    long held = 0;
    boolean isMade = false;
    try {
      long text = scratch.optional(path == null ? null : path.toString());
      runtime.handle();
      if (watch.progress != null) held = Native.hold(watch);
      long raw = options.write(scratch, held);
      long made = watched(watch, () -> runtime.out((handle, out, error) -> Raw.quantizerCreate(handle, text, raw, out, error)));
      isMade = true;
      return new Quantizer(made, watch);
    } finally {
      if (!isMade && held != 0) Native.drop(held);
      scratch.release(mark);
      Reference.reachabilityFence(options.deadline());
    }
  }

  /** A call that gives something. */
  private interface Body<T> {
    T get();
  }

  /** Makes a call; what the progress threw is the cause of its error. */
  private static <T> T watched(Watch watch, Body<T> body) {
    watch.thrown = null;
    try {
      return body.get();
    } catch (EvenerException failure) {
      if (watch.thrown != null && failure.getCause() == null) failure.initCause(watch.thrown);
      throw failure;
    }
  }

  /** A function that is given inputs. */
  private interface InputsCall {
    int call(long handle, long inputs, int count, long error);
  }

  private void given(Map<String, Tensor> inputs, InputsCall call) {
    int count = inputCount();
    Scratch scratch = Scratch.get();
    long mark = scratch.mark();
    try {
      long from = scratch.allocate(8L * count);
      inputs.forEach((name, tensor) -> scratch.putLong(from + 8L * findInput(name), tensor.handle()));
      watched(
          watch,
          () -> {
            call((handle, error) -> call.call(handle, from, count, error));
            return null;
          });
    } finally {
      scratch.release(mark);
      Reference.reachabilityFence(inputs);
    }
  }

  /**
   * Gives how many inputs the model has.
   *
   * @return the number
   */
  public int inputCount() {
    return (int) out(Raw::quantizerInputCount);
  }

  /**
   * Gives the place of an input.
   *
   * @param name its name
   * @return from 0 on
   */
  public int findInput(String name) {
    return Session.find(this, name, Raw::quantizerFindInput);
  }

  /**
   * Runs the float32 model over one calibration batch and keeps what its activations show.
   *
   * @param inputs by name
   */
  public void addBatch(Map<String, Tensor> inputs) {
    given(inputs, Raw::quantizerAddBatch);
  }

  /**
   * Takes back layers that are not worth it. Builds and runs the model several times.
   *
   * @param inputs by name, best others than those of calibration
   * @param options null: as they are at first
   */
  public void guard(Map<String, Tensor> inputs, GuardOptions options) {
    GuardOptions of = options == null ? new GuardOptions() : options;
    Scratch scratch = Scratch.get();
    long mark = scratch.mark();
    try {
      long raw = scratch.allocate(Layout.GuardOptions.SIZE);
      Raw.guardOptionsInit(raw, Layout.GuardOptions.SIZE);
      if (!of.error() && !of.speed()) throw EvenerException.argument("a guard that looks at nothing");
      scratch.putInt(raw + Layout.GuardOptions.FLAGS, (of.error() ? Numbers.EVN_GUARD_ERROR : 0) | (of.speed() ? Numbers.EVN_GUARD_SPEED : 0));
      scratch.putDouble(raw + Layout.GuardOptions.MIN_COSINE, of.minCosine());
      scratch.putDouble(raw + Layout.GuardOptions.MIN_LAYER_SQNR_DB, of.minLayerSqnrDb());
      given(inputs, (handle, from, count, error) -> Raw.quantizerGuard(handle, from, count, raw, error));
    } finally {
      scratch.release(mark);
    }
  }

  /**
   * Compares the float32 and the quantized model over inputs, for the report.
   *
   * @param inputs by name
   */
  public void verify(Map<String, Tensor> inputs) {
    given(inputs, Raw::quantizerVerify);
  }

  /**
   * Makes the quantized model.
   *
   * @return the model, which the caller closes
   */
  public Model finish() {
    return new Model(watched(watch, () -> out(Raw::quantizerFinish)));
  }

  /**
   * Writes the quantized model as an ONNX file. What was there is replaced at the end, in one step.
   *
   * @param path the file
   */
  public void save(Path path) {
    Scratch scratch = Scratch.get();
    long mark = scratch.mark();
    try {
      long text = scratch.text(path.toString());
      watched(
          watch,
          () -> {
            call((handle, error) -> Raw.quantizerSave(handle, text, error));
            return null;
          });
    } finally {
      scratch.release(mark);
    }
  }

  /**
   * Writes what was done.
   *
   * @param format {@link Format#TEXT} or {@link Format#JSON}
   * @return the text
   */
  public String report(Format format) {
    return text(1 << 14, (buffer, capacity, size, error) -> Raw.quantizerReport(handle(), format.value(), buffer, capacity, size, error));
  }
}

package evener;

import java.lang.ref.Reference;
import java.nio.file.Path;
import java.util.Map;
import java.util.TreeMap;

/**
 * Trains a model where its data is. Calls on one wait for each other.
 *
 * <pre>{@code
 * TrainerOptions options = new TrainerOptions().optimizer(Optimizer.ADAMW).learningRate(1e-3);
 * try (Trainer trainer = Trainer.open(runtime, Path.of("model.onnx"), options)) {
 *   Step step = trainer.step(Map.of("x", x), labels);
 *   trainer.export(Path.of("trained.onnx"));
 * }
 * }</pre>
 */
public final class Trainer extends NativeObject {
  /**
   * What C hands to the sums over ranks: the caller's function, and what it threw, which its call is to throw on. C has it until the trainer is closed and no
   * call that may use it is under way.
   */
  static final class Watch {
    final Ranks.Reduce reduce;
    volatile Throwable thrown;
    private long held;
    private int calls;
    private boolean isClosed;

    Watch(Ranks.Reduce reduce) {
      this.reduce = reduce;
    }

    private synchronized long hold() {
      if (reduce != null) held = Native.hold(this);
      return held;
    }

    private synchronized void enter() {
      calls++;
    }

    private synchronized void leave() {
      calls--;
      end();
    }

    private synchronized void close() {
      isClosed = true;
      end();
    }

    private void end() {
      if (!isClosed || calls != 0 || held == 0) return;
      Native.drop(held);
      held = 0;
    }
  }

  private final Watch watch;

  private Trainer(long handle, Watch watch) {
    super("trainer", handle, ended -> release(ended, watch));
    this.watch = watch;
  }

  private static int release(long handle, Watch watch) {
    int status = Raw.trainerRelease(handle);
    watch.close();
    return status;
  }

  /**
   * Reads a model and makes what trains it.
   *
   * @param runtime where it is trained
   * @param path an ONNX file; null: {@link TrainerOptions#data}
   * @param given how; null: by the library's defaults
   * @return the trainer, which the caller closes
   */
  public static Trainer open(Runtime runtime, Path path, TrainerOptions given) {
    TrainerOptions options = given == null ? new TrainerOptions() : given;
    Watch watch = new Watch(options.ranks() == null ? null : options.ranks().reduce());
    Scratch scratch = Scratch.get();
    long mark = scratch.mark();
    boolean isMade = false;
    try {
      long text = scratch.optional(path == null ? null : path.toString());
      runtime.handle();
      long raw = options.write(scratch, watch.hold());
      long made = watched(watch, () -> runtime.out((handle, out, error) -> Raw.trainerCreate(handle, text, raw, out, error)));
      isMade = true;
      return new Trainer(made, watch);
    } finally {
      if (!isMade) watch.close();
      scratch.release(mark);
      Reference.reachabilityFence(options.token());
    }
  }

  /** A call that gives something. */
  private interface Body<T> {
    T get();
  }

  /** Makes a call; what the sums threw is the cause of its error. */
  private static <T> T watched(Watch watch, Body<T> body) {
    watch.enter();
    try {
      watch.thrown = null;
      return body.get();
    } catch (EvenerException failure) {
      Throwable thrown = watch.thrown;
      if (thrown != null && failure.getCause() == null && thrown != failure) failure.initCause(thrown);
      throw failure;
    } finally {
      watch.leave();
    }
  }

  private void made(Call call) {
    watched(
        watch,
        () -> {
          call(call);
          return null;
        });
  }

  /** A function that is given a batch, and writes what came of it. */
  private interface BatchCall {
    int call(long handle, long inputs, int count, long labels, long info, long error);
  }

  private void given(Map<String, Tensor> inputs, Tensor labels, long info, BatchCall call) {
    int count = inputCount();
    Scratch scratch = Scratch.get();
    long mark = scratch.mark();
    try {
      long from = scratch.allocate(8L * count);
      inputs.forEach((name, tensor) -> scratch.putLong(from + 8L * findInput(name), tensor.handle()));
      long classes = labels == null ? 0 : labels.handle();
      made((handle, error) -> call.call(handle, from, count, classes, info, error));
    } finally {
      scratch.release(mark);
      Reference.reachabilityFence(inputs);
      Reference.reachabilityFence(labels);
    }
  }

  /**
   * Gives how many inputs the model has.
   *
   * @return the number
   */
  public int inputCount() {
    return (int) out(Raw::trainerInputCount);
  }

  /**
   * Gives the place of an input.
   *
   * @param name its name
   * @return from 0 on
   */
  public int findInput(String name) {
    return Session.find(this, name, Raw::trainerFindInput);
  }

  /**
   * Learns from one batch.
   *
   * @param inputs by name
   * @param labels as the loss says; null with {@link Loss#OUTPUT}
   * @return what it did
   */
  public Step step(Map<String, Tensor> inputs, Tensor labels) {
    Scratch scratch = Scratch.get();
    long mark = scratch.mark();
    try {
      long info = scratch.allocate(Layout.StepInfo.SIZE);
      Raw.stepInfoInit(info, Layout.StepInfo.SIZE);
      given(inputs, labels, info, Raw::trainerStep);
      return new Step(
          scratch.getDouble(info + Layout.StepInfo.LOSS),
          scratch.getDouble(info + Layout.StepInfo.LEARNING_RATE),
          scratch.getDouble(info + Layout.StepInfo.GRADIENT_NORM),
          scratch.getDouble(info + Layout.StepInfo.LOSS_SCALE),
          scratch.getInt(info + Layout.StepInfo.SKIPPED) != 0,
          scratch.getLong(info + Layout.StepInfo.STEP));
    } finally {
      scratch.release(mark);
    }
  }

  /**
   * Compares the model as it is in use with labels. Nothing is learned.
   *
   * @param inputs by name
   * @param labels as the loss says; null with {@link Loss#OUTPUT}
   * @return how good it is
   */
  public Evaluation evaluate(Map<String, Tensor> inputs, Tensor labels) {
    Scratch scratch = Scratch.get();
    long mark = scratch.mark();
    try {
      long info = scratch.allocate(Layout.Evaluation.SIZE);
      Raw.evaluationInit(info, Layout.Evaluation.SIZE);
      given(inputs, labels, info, Raw::trainerEvaluate);
      return new Evaluation(
          scratch.getDouble(info + Layout.Evaluation.LOSS),
          scratch.getLong(info + Layout.Evaluation.CORRECT),
          scratch.getLong(info + Layout.Evaluation.COUNT));
    } finally {
      scratch.release(mark);
    }
  }

  /**
   * Tells {@link Schedule#PLATEAU} what is to fall.
   *
   * @param value a loss of validation
   */
  public void noteMetric(double value) {
    made((handle, error) -> Raw.trainerNoteMetric(handle, value, error));
  }

  /**
   * Gives another rate in the place of the options', from the next step on.
   *
   * @param rate the rate, from which the schedule goes on
   */
  public void setLearningRate(double rate) {
    made((handle, error) -> Raw.trainerSetLearningRate(handle, rate, error));
  }

  /**
   * Gives copies of the parameters that learn.
   *
   * @return by name; the caller closes them
   */
  public Map<String, Tensor> parameters() {
    return copies(ParameterPart.VALUE);
  }

  /**
   * Gives copies of the gradients of the last step, before clipping.
   *
   * @return by name; the caller closes them
   */
  public Map<String, Tensor> gradients() {
    return copies(ParameterPart.GRADIENT);
  }

  private Map<String, Tensor> copies(ParameterPart part) {
    int count = (int) out(Raw::trainerParameterCount);
    Map<String, Tensor> made = new TreeMap<>();
    boolean isDone = false;
    try {
      for (int i = 0; i < count; i++) {
        int index = i;
        String name = text(64, (buffer, capacity, size, error) -> Raw.trainerParameterName(handle(), index, buffer, capacity, size, error));
        long tensor = watched(watch, () -> out((handle, out, error) -> Raw.trainerGetParameter(handle, index, part.value(), out, error)));
        made.put(name, new Tensor(tensor));
      }
      isDone = true;
      return made;
    } finally {
      if (!isDone) made.values().forEach(Tensor::close);
    }
  }

  /** A function that is given a path. */
  private interface PathCall {
    int call(long handle, long path, long error);
  }

  private void file(Path path, PathCall call) {
    Scratch scratch = Scratch.get();
    long mark = scratch.mark();
    try {
      long text = scratch.text(path.toString());
      made((handle, error) -> call.call(handle, text, error));
    } finally {
      scratch.release(mark);
    }
  }

  /**
   * Writes all that training needs to go on with the same bits (safetensors). What was there is replaced at the end, in one step.
   *
   * @param path the file
   */
  public void save(Path path) {
    file(path, Raw::trainerSave);
  }

  /**
   * Takes what {@link #save} wrote, of a trainer of the same model, loss and optimizer.
   *
   * @param path the file
   */
  public void restore(Path path) {
    file(path, Raw::trainerRestore);
  }

  /**
   * Makes the trained model, with the parameters of now.
   *
   * @return the model, which the caller closes
   */
  public Model finish() {
    return new Model(watched(watch, () -> out(Raw::trainerFinish)));
  }

  /**
   * Writes the trained model as an ONNX file. What was there is replaced at the end, in one step.
   *
   * @param path the file
   */
  public void export(Path path) {
    file(path, Raw::trainerExport);
  }

  /**
   * Writes what is trained, and how it went.
   *
   * @param format {@link Format#TEXT} or {@link Format#JSON}
   * @return the text
   */
  public String describe(Format format) {
    return text(4096, (buffer, capacity, size, error) -> Raw.trainerDescribe(handle(), format.value(), buffer, capacity, size, error));
  }
}

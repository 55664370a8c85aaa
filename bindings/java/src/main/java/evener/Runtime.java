package evener;

import java.lang.ref.Reference;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/**
 * Devices, memory pools and threads. What is made of it keeps it: it goes when all of that is closed. All methods may be called from any thread.
 *
 * <p>Its name is that of a class of java.lang: {@code import evener.Runtime;} says which is meant.
 */
public final class Runtime extends NativeObject {
  private final Device cpu;

  /** Makes a runtime of the CPU with all cores that this process may use. */
  public Runtime() {
    this(new RuntimeOptions());
  }

  /**
   * Makes a runtime: reads the configuration and opens the devices that it names.
   *
   * @param options how
   * @throws EvenerException with {@link Status#CONFIG} (line and column are in the message), {@link Status#IO}, {@link Status#DEVICE_UNAVAILABLE}
   */
  public Runtime(RuntimeOptions options) {
    super("runtime", options.create(), Raw::runtimeRelease);
    Device first = null;
    try {
      first = deviceAt(0);
    } finally {
      if (first == null) close();
    }
    cpu = first;
  }

  /** Ends the hold. The runtime goes, and with it its threads, when what was made of it has gone. */
  @Override
  public void close() {
    if (cpu != null) cpu.close();
    super.close();
  }

  Device cpu() {
    handle();
    return cpu;
  }

  private Device deviceAt(int index) {
    return new Device(out((handle, out, error) -> Raw.runtimeDeviceAt(handle, index, out, error)));
  }

  /**
   * Gives the devices that have been opened so far; the first is the CPU.
   *
   * @return the devices, which the caller closes
   */
  public List<Device> devices() {
    int count = (int) out(Raw::runtimeDeviceCount);
    List<Device> made = new ArrayList<>();
    for (int i = 0; i < count; i++) made.add(deviceAt(i));
    return made;
  }

  /**
   * Gives a device by its string, and opens it where it is not open yet. May block on the driver.
   *
   * @param name "cpu", "gpu", "gpu:1", "opencl:0" or a name of the configuration
   * @return the device, which the caller closes
   * @throws EvenerException with {@link Status#DEVICE_UNAVAILABLE}; the message lists the devices that there are
   */
  public Device device(String name) {
    return new Device(named(name, Raw::runtimeDeviceFind));
  }

  /** A function that gives a handle for a name. */
  interface NamedCall {
    int call(long handle, long name, long out, long error);
  }

  long named(String name, NamedCall call) {
    Scratch scratch = Scratch.get();
    long mark = scratch.mark();
    try {
      long text = scratch.text(name);
      return out((handle, out, error) -> call.call(handle, text, out, error));
    } finally {
      scratch.release(mark);
    }
  }

  /**
   * Writes every platform and device that this machine offers, opened or not, and the models that the configuration names.
   *
   * @param format {@link Format#TEXT} or {@link Format#JSON}
   * @return the text
   */
  public String describeDevices(Format format) {
    return text(4096, (buffer, capacity, size, error) -> Raw.runtimeDescribeDevices(handle(), format.value(), buffer, capacity, size, error));
  }

  /**
   * Writes what runs and requests of all sessions have come to so far, and the memory of the devices.
   *
   * @param format {@link Format#TEXT}, {@link Format#JSON} or {@link Format#PROMETHEUS}
   * @return the text
   */
  public String statistics(Format format) {
    return text(1 << 14, (buffer, capacity, size, error) -> Raw.runtimeGetStatistics(handle(), format.value(), buffer, capacity, size, error));
  }

  /**
   * Gives the session of a model that the configuration names in {@code models:}, one for all who ask. The first call loads the model.
   *
   * @param name a key of {@code models:}
   * @return the session, which the caller closes
   */
  public Session session(String name) {
    return new Session(named(name, Raw::runtimeSession));
  }

  /**
   * Gives the runtime, and every session of it, another configuration. On an error nothing has changed. Takes as long as making all sessions; runs go on
   * meanwhile.
   *
   * @param yaml its text; "": as without one
   * @param deadline when it ends; null: never
   */
  public void reconfigure(String yaml, Deadline deadline) {
    reconfigure(null, yaml, deadline);
  }

  /**
   * Gives the runtime, and every session of it, the configuration of a file. On an error nothing has changed.
   *
   * @param path a YAML file
   * @param deadline when it ends; null: never
   */
  public void reconfigure(Path path, Deadline deadline) {
    reconfigure(path.toString(), "", deadline);
  }

  private void reconfigure(String path, String yaml, Deadline given) {
    Deadline deadline = given == null ? Deadline.NONE : given;
    Scratch scratch = Scratch.get();
    long mark = scratch.mark();
    try {
      byte[] bytes = yaml.getBytes(StandardCharsets.UTF_8);
      long options = scratch.allocate(Layout.ReconfigureOptions.SIZE);
      Raw.reconfigureOptionsInit(options, Layout.ReconfigureOptions.SIZE);
      scratch.putLong(options + Layout.ReconfigureOptions.CONFIG_PATH, scratch.optional(path));
      scratch.putLong(options + Layout.ReconfigureOptions.CONFIG_TEXT, scratch.bytes(bytes));
      scratch.putLong(options + Layout.ReconfigureOptions.CONFIG_SIZE, bytes.length);
      scratch.putLong(options + Layout.ReconfigureOptions.CANCEL, CancelToken.handleOf(deadline.token()));
      scratch.putLong(options + Layout.ReconfigureOptions.DEADLINE_NS, deadline.nanoseconds());
      call((handle, error) -> Raw.runtimeReconfigure(handle, options, error));
    } finally {
      scratch.release(mark);
      Reference.reachabilityFence(deadline);
    }
  }

  /**
   * Measures what steps of a model take on each device, for placements of {@code default: auto}. Takes a second or two for each device.
   *
   * @param model of this runtime; null: some 100 operators in sizes that networks have
   * @param format {@link Format#TEXT} or {@link Format#JSON}
   * @param given when it ends; null: never
   * @return what was measured
   */
  public String calibrate(Model model, Format format, Deadline given) {
    Deadline deadline = given == null ? Deadline.NONE : given;
    Scratch scratch = Scratch.get();
    long mark = scratch.mark();
    try {
      long of = model == null ? 0 : model.handle();
      long options = scratch.allocate(Layout.CalibrateOptions.SIZE);
      Raw.calibrateOptionsInit(options, Layout.CalibrateOptions.SIZE);
      scratch.putLong(options + Layout.CalibrateOptions.CANCEL, CancelToken.handleOf(deadline.token()));
      scratch.putLong(options + Layout.CalibrateOptions.DEADLINE_NS, deadline.nanoseconds());
      return text(
          1 << 16,
          (buffer, capacity, size, error) -> Raw.runtimeCalibrate(handle(), of, options, format.value(), buffer, capacity, size, error));
    } finally {
      scratch.release(mark);
      Reference.reachabilityFence(model);
      Reference.reachabilityFence(deadline);
    }
  }

  /**
   * Writes what a model needs, also where this library cannot load it.
   *
   * @param path an ONNX file
   * @param shapes of inputs whose dims the model leaves open, by their names
   * @param format {@link Format#TEXT} or {@link Format#JSON}
   * @return the text
   */
  public String inspect(Path path, Map<String, long[]> shapes, Format format) {
    Scratch scratch = Scratch.get();
    long mark = scratch.mark();
    try {
      long text = scratch.text(path.toString());
      long options = scratch.allocate(Layout.InspectOptions.SIZE);
      Raw.inspectOptionsInit(options, Layout.InspectOptions.SIZE);
      scratch.putLong(options + Layout.InspectOptions.SHAPES, State.shapes(scratch, shapes));
      scratch.putInt(options + Layout.InspectOptions.SHAPE_COUNT, shapes.size());
      return text(
          1 << 16,
          (buffer, capacity, size, error) -> Raw.modelInspect(handle(), text, options, format.value(), buffer, capacity, size, error));
    } finally {
      scratch.release(mark);
    }
  }

  /**
   * Reads an ONNX file. Weights in other files must lie in its folder.
   *
   * @param path the file
   * @param deadline when it ends; null: never
   * @return the model, which the caller closes
   */
  public Model load(Path path, Deadline deadline) {
    return Model.load(this, path, new ModelOptions(), deadline);
  }

  /**
   * Reads an ONNX file.
   *
   * @param path the file
   * @param options where its files may lie, and how they are used
   * @param deadline when it ends; null: never
   * @return the model, which the caller closes
   */
  public Model load(Path path, ModelOptions options, Deadline deadline) {
    return Model.load(this, path, options, deadline);
  }

  /**
   * Reads a model from memory, which is copied.
   *
   * @param model the file's bytes
   * @param options where files of its weights may lie, and how they are used
   * @return the model, which the caller closes
   */
  public Model load(byte[] model, ModelOptions options) {
    return Model.load(this, model, options, null);
  }

  /**
   * Reads an ONNX file. Weights in other files must lie in its folder.
   *
   * @param path the file
   * @return the model, which the caller closes
   * @throws EvenerException with {@link Status#IO}, {@link Status#INVALID_MODEL}, {@link Status#UNSUPPORTED} (the node is named), {@link Status#LIMIT}
   */
  public Model load(Path path) {
    return Model.load(this, path, new ModelOptions(), null);
  }

  /**
   * Reads a model from memory, which is copied.
   *
   * @param model the file's bytes
   * @return the model, which the caller closes
   */
  public Model load(byte[] model) {
    return Model.load(this, model, new ModelOptions(), null);
  }

  /**
   * Reads a model from memory, which is copied.
   *
   * @param model the file's bytes
   * @param externalDirectory the folder of its weights in other files; null: there are none
   * @param deadline when it ends; null: never
   * @return the model, which the caller closes
   */
  public Model load(byte[] model, Path externalDirectory, Deadline deadline) {
    return Model.load(this, model, new ModelOptions().externalDirectory(externalDirectory), deadline);
  }

  /**
   * Reads a model from a buffer, from its position to its limit. The library copies it.
   *
   * @param model the file's bytes; a direct buffer is read where it lies
   * @return the model, which the caller closes
   */
  public Model load(ByteBuffer model) {
    return Model.load(this, model);
  }

  /**
   * Adds an operator to those that models which this runtime loads from now on may use. It runs on the CPU.
   *
   * @param definition what it is called and takes
   * @param operator what it does. It is held until the runtime and everything made of it have gone
   * @throws EvenerException with {@link Status#INVALID_ARGUMENT}: names or counts that are not allowed, or taken
   */
  public void registerOperator(OperatorDefinition definition, Operator operator) {
    definition.register(this, operator);
  }
}

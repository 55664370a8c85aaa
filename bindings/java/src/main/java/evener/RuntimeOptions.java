package evener;

import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.function.Consumer;

/** How a runtime is made. Without anything: the CPU with all cores that this process may use, no caps. It is read when the runtime is made. */
public final class RuntimeOptions {
  private int threads;
  private String configPath;
  private String configText;
  private String cacheDirectory;
  private long memoryLimit;
  private Consumer<LogRecord> log;
  private LogLevel logLevel = LogLevel.WARNING;
  private String probeProgram;
  private long probeTimeout;

  /** Makes options that change nothing. */
  public RuntimeOptions() {}

  /**
   * Sets how many threads the CPU device has, the caller's included.
   *
   * @param count 0: from the configuration, else all that the process may use
   * @return this
   */
  public RuntimeOptions threads(int count) {
    threads = count;
    return this;
  }

  /**
   * Sets the configuration to that of a YAML file; config/schema.yaml documents its keys.
   *
   * @param path the file
   * @return this
   */
  public RuntimeOptions config(Path path) {
    configPath = path.toString();
    return this;
  }

  /**
   * Sets the configuration; not together with a file.
   *
   * @param yaml its text, which must not be empty
   * @return this
   */
  public RuntimeOptions config(String yaml) {
    configText = yaml;
    return this;
  }

  /**
   * Sets the folder for compiled OpenCL programs.
   *
   * @param folder its path; "": there is none
   * @return this
   */
  public RuntimeOptions cacheDirectory(String folder) {
    cacheDirectory = folder;
    return this;
  }

  /**
   * Sets the cap of the CPU device.
   *
   * @param bytes 0: from the configuration, else none
   * @return this
   */
  public RuntimeOptions memoryLimit(long bytes) {
    memoryLimit = bytes;
    return this;
  }

  /**
   * Has what happens told to a function. It is called on any thread, must return soon and not call the library but to close other objects; what it throws
   * is handed to that thread's {@link Thread.UncaughtExceptionHandler}.
   *
   * @param level the last level that is told
   * @param sink the function
   * @return this
   */
  public RuntimeOptions log(LogLevel level, Consumer<LogRecord> sink) {
    logLevel = level;
    log = sink;
    return this;
  }

  /**
   * Has a program of its own try drivers before they are loaded into this process.
   *
   * @param program path of the {@code evener} command
   * @param time at most for each set of drivers; null: the configuration's, else 5 s
   * @return this
   */
  public RuntimeOptions probe(Path program, Duration time) {
    probeProgram = program.toString();
    probeTimeout = CancelToken.nanoseconds(time);
    return this;
  }

  long create() {
    Library.ready();
    Scratch scratch = Scratch.get();
    long mark = scratch.mark();
    long held = 0;
    try {
      long made = scratch.allocate(Layout.RuntimeOptions.SIZE);
      Raw.runtimeOptionsInit(made, Layout.RuntimeOptions.SIZE);
      byte[] yaml = configText == null ? new byte[0] : configText.getBytes(StandardCharsets.UTF_8);
      scratch.putInt(made + Layout.RuntimeOptions.THREAD_COUNT, threads);
      scratch.putLong(made + Layout.RuntimeOptions.CONFIG_PATH, scratch.optional(configPath));
      scratch.putLong(made + Layout.RuntimeOptions.CONFIG_TEXT, configText == null ? 0 : scratch.counted(yaml));
      scratch.putLong(made + Layout.RuntimeOptions.CONFIG_SIZE, yaml.length);
      scratch.putLong(made + Layout.RuntimeOptions.CACHE_DIR, scratch.optional(cacheDirectory));
      scratch.putLong(made + Layout.RuntimeOptions.CPU_MEMORY_LIMIT_BYTES, memoryLimit);
      scratch.putLong(made + Layout.RuntimeOptions.PROBE_PROGRAM, scratch.optional(probeProgram));
      scratch.putLong(made + Layout.RuntimeOptions.PROBE_TIMEOUT_NS, probeTimeout);
      long out = scratch.allocate(8);
      long error = scratch.error();
      if (log != null) {
        held = Native.hold(log);
        scratch.putInt(made + Layout.RuntimeOptions.LOG_LEVEL, logLevel.value());
        scratch.putLong(made + Layout.RuntimeOptions.LOG_SINK, Native.LOG);
        scratch.putLong(made + Layout.RuntimeOptions.LOG_SINK_USER, held);
        scratch.putLong(made + Layout.RuntimeOptions.LOG_SINK_RELEASE, Native.RELEASE);
      }
      scratch.check(Raw.runtimeCreate(made, out, error), error);
      held = 0; // the library's from now on
      return scratch.getLong(out);
    } finally {
      if (held != 0) Native.drop(held);
      scratch.release(mark);
    }
  }
}

package evener;

import java.util.List;

/** How a session is made. Without anything: as the configuration says. */
public final class SessionOptions {
  private String device;
  private String name;
  private String cacheFile;
  private int cacheFlags;
  private Precision precision = Precision.DEFAULT;
  private Numerics numerics = Numerics.DEFAULT;
  private Products products = Products.DEFAULT;
  private MemoryPlan memory = MemoryPlan.DEFAULT;
  private Arenas arenas = Arenas.DEFAULT;
  private List<String> keepFp32 = List.of();
  private List<String> disabledPasses = List.of();
  private List<String> overridable = List.of();
  private int concurrency;
  private long idleArenaBytes;
  private long arenaLimit;
  private Batching batching;

  /** Makes options that change nothing. */
  public SessionOptions() {}

  /**
   * Sets the device of nodes that no rule places.
   *
   * @param names one, or several with commas between them, of which the first that can runs a node; "auto": searched for by measured costs
   * @return this
   */
  public SessionOptions device(String names) {
    device = names;
    return this;
  }

  /**
   * Sets what statistics call the session.
   *
   * @param called null: the model's file name
   * @return this
   */
  public SessionOptions name(String called) {
    name = called;
    return this;
  }

  /**
   * Keeps packed weights of the CPU in a file from one process to the next.
   *
   * @param path a file, or a folder where it ends in /; "": none, whatever the configuration says
   * @param isReadOnly it is never written
   * @param isMapped its weights are used where they lie, unchecked, in pages that processes share
   * @return this
   */
  public SessionOptions cache(String path, boolean isReadOnly, boolean isMapped) {
    cacheFile = path;
    cacheFlags = (isReadOnly ? Numbers.EVN_CACHE_READ_ONLY : 0) | (isMapped ? Numbers.EVN_CACHE_MAP : 0);
    return this;
  }

  /**
   * Sets the lowest precision of products.
   *
   * @param lowest of nodes for which no rule has one
   * @param except globs of names of nodes that stay float32, or "type:Softmax"
   * @return this
   */
  public SessionOptions precision(Precision lowest, String... except) {
    precision = lowest;
    keepFp32 = List.of(except);
    return this;
  }

  /**
   * Sets how far sums may be from plain ones.
   *
   * @param of nodes for which no rule has one
   * @return this
   */
  public SessionOptions numerics(Numerics of) {
    numerics = of;
    return this;
  }

  /**
   * Sets which library multiplies matrices.
   *
   * @param of nodes for which no rule has one
   * @return this
   */
  public SessionOptions products(Products of) {
    products = of;
    return this;
  }

  /**
   * Sets how much memory the session may take for speed.
   *
   * @param plan fast or small
   * @return this
   */
  public SessionOptions memory(MemoryPlan plan) {
    memory = plan;
    return this;
  }

  /**
   * Sets whose the memory for intermediate values is.
   *
   * @param whose the session's own, or shared
   * @return this
   */
  public SessionOptions arenas(Arenas whose) {
    arenas = whose;
    return this;
  }

  /**
   * Leaves passes out.
   *
   * @param names of {@link Evener#describePasses}, of {@code when} "session"
   * @return this
   */
  public SessionOptions disablePasses(String... names) {
    disabledPasses = List.of(names);
    return this;
  }

  /**
   * Opens inputs with a default from the start.
   *
   * @param names of {@link Session#defaults} that runs are going to give
   * @return this
   */
  public SessionOptions overridable(String... names) {
    overridable = List.of(names);
    return this;
  }

  /**
   * Sets how many runs compute at a time at most.
   *
   * @param runs 0: as the configuration says
   * @return this
   */
  public SessionOptions concurrency(int runs) {
    concurrency = runs;
    return this;
  }

  /**
   * Sets how much memory for intermediate values is kept for runs to come.
   *
   * @param bytes 0: as the configuration says
   * @return this
   */
  public SessionOptions idleArenaBytes(long bytes) {
    idleArenaBytes = bytes;
    return this;
  }

  /**
   * Limits the intermediate values of a run: what does not fit is computed again.
   *
   * @param bytes 0: there is no limit
   * @return this
   */
  public SessionOptions arenaLimit(long bytes) {
    arenaLimit = bytes;
    return this;
  }

  /**
   * Joins requests to batches.
   *
   * @param how null: as the configuration says
   * @return this
   */
  public SessionOptions batching(Batching how) {
    batching = how;
    return this;
  }

  long write(Scratch scratch, Deadline deadline) {
    long made = scratch.allocate(Layout.SessionOptions.SIZE);
    Raw.sessionOptionsInit(made, Layout.SessionOptions.SIZE);
    scratch.putLong(made + Layout.SessionOptions.DEVICE, scratch.optional(device));
    scratch.putLong(made + Layout.SessionOptions.NAME, scratch.optional(name));
    scratch.putLong(made + Layout.SessionOptions.CACHE_FILE, scratch.optional(cacheFile));
    scratch.putInt(made + Layout.SessionOptions.CACHE_FLAGS, cacheFlags);
    scratch.putInt(made + Layout.SessionOptions.PRECISION, precision.value());
    scratch.putInt(made + Layout.SessionOptions.NUMERICS, numerics.value());
    scratch.putInt(made + Layout.SessionOptions.PRODUCTS, products.value());
    scratch.putInt(made + Layout.SessionOptions.MEMORY, memory.value());
    scratch.putInt(made + Layout.SessionOptions.ARENAS, arenas.value());
    scratch.putLong(made + Layout.SessionOptions.KEEP_FP32, scratch.texts(keepFp32));
    scratch.putInt(made + Layout.SessionOptions.KEEP_FP32_COUNT, keepFp32.size());
    scratch.putLong(made + Layout.SessionOptions.DISABLED_PASSES, scratch.texts(disabledPasses));
    scratch.putInt(made + Layout.SessionOptions.DISABLED_PASS_COUNT, disabledPasses.size());
    scratch.putLong(made + Layout.SessionOptions.OVERRIDABLE, scratch.texts(overridable));
    scratch.putInt(made + Layout.SessionOptions.OVERRIDABLE_COUNT, overridable.size());
    scratch.putInt(made + Layout.SessionOptions.CONCURRENCY, concurrency);
    scratch.putLong(made + Layout.SessionOptions.IDLE_ARENA_BYTES, idleArenaBytes);
    scratch.putLong(made + Layout.SessionOptions.ARENA_LIMIT, arenaLimit);
    if (batching != null) scratch.putLong(made + Layout.SessionOptions.BATCHING, batching.write(scratch));
    if (deadline != null) {
      scratch.putLong(made + Layout.SessionOptions.CANCEL, CancelToken.handleOf(deadline.token()));
      scratch.putLong(made + Layout.SessionOptions.DEADLINE_NS, deadline.nanoseconds());
    }
    return made;
  }
}

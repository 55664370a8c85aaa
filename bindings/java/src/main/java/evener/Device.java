package evener;

import java.lang.ref.Reference;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;

/** One device of a runtime. It lives as long as the runtime; closing it ends this view of it. */
public final class Device extends NativeObject {
  private static final String[] CLASSES = {"tensors", "weights", "packed", "arenas", "scratch", "loading", "states", "heap"};

  Device(long handle) {
    super("device", handle, Raw::deviceRelease);
  }

  /**
   * Gives what it is.
   *
   * @return what is known of it now
   */
  public DeviceInfo info() {
    Scratch scratch = Scratch.get();
    long mark = scratch.mark();
    try {
      long info = scratch.struct(Layout.DeviceInfo.SIZE);
      call((handle, error) -> Raw.deviceGetInfo(handle, info, error));
      int features = scratch.getInt(info + Layout.DeviceInfo.FEATURES);
      return new DeviceInfo(
          DeviceKind.of(scratch.getInt(info + Layout.DeviceInfo.KIND)),
          DeviceClass.of(scratch.getInt(info + Layout.DeviceInfo.DEVICE_CLASS)),
          scratch.chars(info + Layout.DeviceInfo.NAME, Layout.DeviceInfo.NAME_BYTES),
          text(128, (buffer, capacity, size, error) -> Raw.deviceDescription(handle(), buffer, capacity, size, error)),
          text(128, (buffer, capacity, size, error) -> Raw.deviceDriver(handle(), buffer, capacity, size, error)),
          scratch.getInt(info + Layout.DeviceInfo.COMPUTE_UNITS),
          scratch.getLong(info + Layout.DeviceInfo.MEMORY_BYTES),
          scratch.getLong(info + Layout.DeviceInfo.LARGEST_ALLOCATION),
          scratch.chars(info + Layout.DeviceInfo.IDENTITY, Layout.DeviceInfo.IDENTITY_BYTES),
          (features & Numbers.EVN_DEVICE_FP16) != 0,
          (features & Numbers.EVN_DEVICE_BF16) != 0,
          (features & Numbers.EVN_DEVICE_INT8_DOT) != 0,
          (features & Numbers.EVN_DEVICE_UNIFIED_MEMORY) != 0,
          (features & Numbers.EVN_DEVICE_SUBGROUPS) != 0,
          DeviceState.of(scratch.getInt(info + Layout.DeviceInfo.STATE)),
          scratch.getInt(info + Layout.DeviceInfo.QUARANTINES));
    } finally {
      scratch.release(mark);
    }
  }

  /**
   * Gives why it is not ready.
   *
   * @return "it is lost: ...", "it is in quarantine: ...", or "" where it is ready
   */
  public String condition() {
    return text(256, (buffer, capacity, size, error) -> Raw.deviceCondition(handle(), buffer, capacity, size, error));
  }

  /**
   * Gives its memory. Takes the pool's lock for a moment.
   *
   * @return the bytes
   */
  public MemoryStats memoryStats() {
    Scratch scratch = Scratch.get();
    long mark = scratch.mark();
    try {
      long stats = scratch.struct(Layout.MemoryStats.SIZE);
      call((handle, error) -> Raw.deviceGetMemoryStats(handle, stats, error));
      Map<String, Long> byClass = new LinkedHashMap<>();
      for (int i = 0; i < CLASSES.length; i++) byClass.put(CLASSES[i], scratch.getLong(stats + Layout.MemoryStats.BY_CLASS + 8L * i));
      return new MemoryStats(
          scratch.getLong(stats + Layout.MemoryStats.CURRENT),
          scratch.getLong(stats + Layout.MemoryStats.PEAK),
          scratch.getLong(stats + Layout.MemoryStats.RESERVED),
          scratch.getLong(stats + Layout.MemoryStats.LIMIT),
          Collections.unmodifiableMap(byClass),
          scratch.getLong(stats + Layout.MemoryStats.ALLOCATIONS),
          scratch.getLong(stats + Layout.MemoryStats.CACHE_HITS),
          scratch.getLong(stats + Layout.MemoryStats.LARGEST_FREE_BLOCK),
          scratch.getLong(stats + Layout.MemoryStats.CACHED),
          scratch.getLong(stats + Layout.MemoryStats.UNUSED),
          scratch.getLong(stats + Layout.MemoryStats.FREE_BLOCKS),
          scratch.getDouble(stats + Layout.MemoryStats.FRAGMENTATION),
          scratch.getLong(stats + Layout.MemoryStats.WEIGHTS_DROPPED),
          scratch.getLong(stats + Layout.MemoryStats.WEIGHTS_RESTORED),
          scratch.getLong(stats + Layout.MemoryStats.CACHE_LIMIT),
          Trim.of(scratch.getInt(stats + Layout.MemoryStats.TRIM)));
    } finally {
      scratch.release(mark);
    }
  }

  /** Sets the peak to what is in use now. */
  public void resetMemoryPeak() {
    call(Raw::deviceResetMemoryPeak);
  }

  /**
   * Changes the cap on what the library holds on the device, while it is in use. Below what is in use nothing is taken away, and what asks for more gets
   * {@link Status#OUT_OF_MEMORY} until enough has been given back.
   *
   * @param bytes at least 4096; -1: no cap
   */
  public void setMemoryLimit(long bytes) {
    call((handle, error) -> Raw.deviceSetMemoryLimit(handle, bytes, error));
  }

  /** Gives cached blocks, and what sessions keep there for runs to come, back to the system. */
  public void trimMemory() {
    call(Raw::deviceTrimMemory);
  }

  /**
   * Changes what the device's pool keeps of blocks that nobody uses.
   *
   * @param cacheLimitBytes the most that is cached; -1: all that the memory limit has room for
   * @param trim when cached blocks are given back
   */
  public void setCachePolicy(long cacheLimitBytes, Trim trim) {
    call((handle, error) -> Raw.deviceSetCachePolicy(handle, cacheLimitBytes, trim.value(), error));
  }

  /**
   * Makes a tensor with bytes set to zero; strings are empty.
   *
   * @param dtype of the elements
   * @param dims the shape, each dim 0 or more
   * @return the tensor, which the caller closes
   */
  public Tensor zeros(DType dtype, long... dims) {
    return zeros(dtype, 0, dims);
  }

  /**
   * Makes a tensor of zeros in memory that the device's driver and the host share.
   *
   * @param dtype of the elements
   * @param dims the shape
   * @return the tensor, which the caller closes
   */
  public Tensor pinned(DType dtype, long... dims) {
    return zeros(dtype, Numbers.EVN_TENSOR_PINNED, dims);
  }

  private Tensor zeros(DType dtype, int flags, long[] dims) {
    Scratch scratch = Scratch.get();
    long mark = scratch.mark();
    try {
      long at = scratch.longs(dims);
      return new Tensor(out((handle, out, error) -> Raw.tensorCreate(handle, dtype.value(), at, dims.length, flags, out, error)));
    } finally {
      scratch.release(mark);
    }
  }

  /**
   * Gives an event of all that the device has been given so far, by whichever thread.
   *
   * @return the event, which the caller closes
   */
  public Event recordEvent() {
    return new Event(out(Raw::deviceRecordEvent));
  }

  /**
   * Has what the device is given from now on begin after an event, and returns at once; the CPU device waits here.
   *
   * @param event of the same runtime
   */
  public void waitEvent(Event event) {
    call((handle, error) -> Raw.deviceWaitEvent(handle, event.handle(), error));
    Reference.reachabilityFence(event);
  }
}

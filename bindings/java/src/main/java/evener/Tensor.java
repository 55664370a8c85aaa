package evener;

import java.lang.ref.Reference;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/**
 * Elements of one type, row-major, on one device. Arrays are copied in and out; direct buffers are shared ({@link #wrap}, {@link #buffer}).
 *
 * <p>Its bytes are the caller's: to write them while a run reads them is a race.
 */
public final class Tensor extends NativeObject {
  private static final int READ = Numbers.EVN_MAP_READ;
  private static final int WRITE = Numbers.EVN_MAP_WRITE;

  private int uses; // copies of its memory that are under way
  private volatile boolean isClosing; // close was called: no other use begins

  Tensor(long handle) {
    super("tensor", handle, Raw::tensorRelease);
  }

  /** Ends the hold; the memory goes when its last use ends, that of copies, requests in flight, views and buffers included. */
  @Override
  public void close() {
    synchronized (this) {
      isClosing = true;
      if (uses > 0) return; // the last use closes
    }
    super.close();
  }

  @Override
  long handle() {
    if (isClosing) throw new EvenerException(Status.INVALID_HANDLE, "the tensor is closed");
    return super.handle();
  }

  // ---------------------------------------------------------------------------------------------------- made of data

  /** Copies between an array and memory. */
  private interface Copy {
    void at(long address);
  }

  private static Tensor of(Runtime runtime, DType dtype, int length, long[] dims, Copy copy) {
    if (countOf(dims) != length) throw EvenerException.argument(length + " elements do not fill dims " + Arrays.toString(dims));
    Tensor made = runtime.cpu().zeros(dtype, dims);
    try {
      made.mapped(WRITE, (address, size) -> copy.at(address));
    } catch (RuntimeException | Error failure) {
      made.close();
      throw failure;
    }
    return made;
  }

  static long countOf(long[] dims) {
    long count = 1;
    for (long dim : dims) {
      if (dim < 0 || (dim != 0 && count > Long.MAX_VALUE / dim)) throw EvenerException.argument("dims " + Arrays.toString(dims) + " are no shape");
      count *= dim;
    }
    return count;
  }

  /**
   * Makes a tensor of the CPU device with a copy of an array.
   *
   * @param runtime of the tensor
   * @param data the elements, row-major
   * @param dims the shape, whose product is the array's length
   * @return a tensor of float32, which the caller closes
   */
  public static Tensor of(Runtime runtime, float[] data, long... dims) {
    return of(runtime, DType.FLOAT32, data.length, dims, at -> Native.writeFloats(at, data, data.length));
  }

  /**
   * Makes a tensor of the CPU device with a copy of an array.
   *
   * @param runtime of the tensor
   * @param data the elements, row-major
   * @param dims the shape, whose product is the array's length
   * @return a tensor of float64, which the caller closes
   */
  public static Tensor of(Runtime runtime, double[] data, long... dims) {
    return of(runtime, DType.FLOAT64, data.length, dims, at -> Native.writeDoubles(at, data, data.length));
  }

  /**
   * Makes a tensor of the CPU device with a copy of an array.
   *
   * @param runtime of the tensor
   * @param data the elements, row-major
   * @param dims the shape, whose product is the array's length
   * @return a tensor of int64, which the caller closes
   */
  public static Tensor of(Runtime runtime, long[] data, long... dims) {
    return of(runtime, DType.INT64, data.length, dims, at -> Native.writeLongs(at, data, data.length));
  }

  /**
   * Makes a tensor of the CPU device with a copy of an array.
   *
   * @param runtime of the tensor
   * @param data the elements, row-major
   * @param dims the shape, whose product is the array's length
   * @return a tensor of int32, which the caller closes
   */
  public static Tensor of(Runtime runtime, int[] data, long... dims) {
    return of(runtime, DType.INT32, data.length, dims, at -> Native.writeInts(at, data, data.length));
  }

  /**
   * Makes a tensor of the CPU device with a copy of an array.
   *
   * @param runtime of the tensor
   * @param dtype one of 2 bytes: INT16, UINT16, FLOAT16, BFLOAT16
   * @param data the elements' bits, row-major
   * @param dims the shape, whose product is the array's length
   * @return the tensor, which the caller closes
   */
  public static Tensor of(Runtime runtime, DType dtype, short[] data, long... dims) {
    fits(dtype, 2);
    return of(runtime, dtype, data.length, dims, at -> Native.writeShorts(at, data, data.length));
  }

  /**
   * Makes a tensor of the CPU device with a copy of an array.
   *
   * @param runtime of the tensor
   * @param dtype one of 1 byte: INT8, UINT8, the float8 types
   * @param data the elements' bits, row-major
   * @param dims the shape, whose product is the array's length
   * @return the tensor, which the caller closes
   */
  public static Tensor of(Runtime runtime, DType dtype, byte[] data, long... dims) {
    fits(dtype, 1);
    return of(runtime, dtype, data.length, dims, at -> Native.writeBytes(at, data, data.length));
  }

  /**
   * Makes a tensor of the CPU device with a copy of an array.
   *
   * @param runtime of the tensor
   * @param data the elements, row-major
   * @param dims the shape, whose product is the array's length
   * @return a tensor of bool, which the caller closes
   */
  public static Tensor of(Runtime runtime, boolean[] data, long... dims) {
    byte[] bytes = new byte[data.length];
    for (int i = 0; i < data.length; i++) bytes[i] = (byte) (data[i] ? 1 : 0);
    return of(runtime, DType.BOOL, data.length, dims, at -> Native.writeBytes(at, bytes, bytes.length));
  }

  /**
   * Makes a tensor of strings.
   *
   * @param runtime of the tensor
   * @param data the elements, row-major
   * @param dims the shape, whose product is the array's length
   * @return the tensor, which the caller closes
   */
  public static Tensor of(Runtime runtime, String[] data, long... dims) {
    Tensor made = runtime.cpu().zeros(DType.STRING, dims);
    Scratch scratch = Scratch.get();
    long mark = scratch.mark();
    try {
      long texts = scratch.allocate(8L * data.length);
      long sizes = scratch.allocate(8L * data.length);
      for (int i = 0; i < data.length; i++) {
        byte[] bytes = data[i].getBytes(StandardCharsets.UTF_8);
        long text = scratch.allocate(bytes.length + 1L);
        Native.writeBytes(text, bytes, bytes.length);
        scratch.putLong(texts + 8L * i, text);
        scratch.putLong(sizes + 8L * i, bytes.length);
      }
      made.call((handle, error) -> Raw.tensorSetStrings(handle, texts, sizes, data.length, error));
    } catch (RuntimeException | Error failure) {
      made.close();
      throw failure;
    } finally {
      scratch.release(mark);
    }
    return made;
  }

  /**
   * Makes a tensor of the CPU device over a direct buffer's memory, from its position to its limit, without a copy. What is written through one is seen
   * through the other. The buffer's memory stays until the last use of the tensor ends, that of requests in flight included. That does not hold for the
   * buffer of a {@code MemorySegment} whose {@code Arena} can be closed: the arena must stay open as long as the tensor, its views (see {@link #part}) and
   * requests that use them.
   *
   * @param runtime of the tensor
   * @param buffer direct, and not read-only; in native byte order, unless elements have one byte
   * @param dtype of the elements
   * @param dims the shape, whose bytes are the buffer's
   * @return the tensor, which the caller closes
   */
  public static Tensor wrap(Runtime runtime, ByteBuffer buffer, DType dtype, long... dims) {
    if (!buffer.isDirect()) throw EvenerException.argument("the buffer is not direct: its memory may move, and can only be copied");
    if (buffer.isReadOnly()) throw EvenerException.argument("the buffer is read-only, which a tensor over it would not be");
    if (buffer.order() != ByteOrder.nativeOrder() && Elements.bytesOf(dtype) != 1) {
      throw EvenerException.argument("the buffer's byte order is " + buffer.order() + ", not that of this machine");
    }
    Scratch scratch = Scratch.get();
    long mark = scratch.mark();
    long held = Native.hold(buffer);
    boolean isKept = false;
    try {
      long at = scratch.longs(dims);
      int size = buffer.remaining();
      long data = Native.addressOf(buffer) + buffer.position();
      long made = runtime.out((handle, out, error) -> Raw.tensorWrap(handle, data, size, dtype.value(), at, dims.length, Native.DELETE, held, out, error));
      isKept = true;
      return new Tensor(made);
    } finally {
      if (!isKept) Native.drop(held);
      scratch.release(mark);
    }
  }

  private static void fits(DType dtype, int bytes) {
    if (Elements.bytesOf(dtype) != bytes || dtype == DType.BOOL) {
      throw EvenerException.argument("elements of " + dtype + " are not made of arrays whose elements have " + bytes + " bytes");
    }
  }

  // --------------------------------------------------------------------------------------------------------- read out

  /** What is done with memory that is mapped. */
  interface Mapped {
    void with(long address, long size);
  }

  /** Calls `use` with the memory. A close that comes meanwhile takes effect at its end: no handle, no memory. */
  void mapped(int flags, Mapped use) {
    long handle;
    synchronized (this) {
      handle = handle();
      uses++;
    }
    Scratch scratch = Scratch.get();
    long mark = scratch.mark();
    try {
      long data = scratch.allocate(8);
      long size = scratch.allocate(8);
      long error = scratch.error();
      scratch.check(Raw.tensorMap(handle, flags, data, size, error), error);
      try {
        use.with(scratch.getLong(data), scratch.getLong(size));
      } finally {
        scratch.check(Raw.tensorUnmap(handle, error), error);
      }
    } finally {
      scratch.release(mark);
      boolean isLast;
      synchronized (this) {
        isLast = --uses == 0 && isClosing;
      }
      if (isLast) super.close();
    }
  }

  /** Checks the type, and gives how many elements an array must have. */
  private int lengthAs(String array, DType... dtypes) {
    TensorInfo info = info();
    if (!Arrays.asList(dtypes).contains(info.dtype())) throw EvenerException.argument("a tensor of " + info.dtype() + " is no array of " + array);
    return lengthOf(info);
  }

  private static int lengthOf(TensorInfo info) {
    if (info.count() > Integer.MAX_VALUE - 8) throw EvenerException.argument("no array has room for " + info);
    return (int) info.count();
  }

  /**
   * Gives a copy of the elements of a tensor of float32.
   *
   * @return the elements, row-major
   */
  public float[] toFloats() {
    float[] made = new float[lengthAs("float", DType.FLOAT32)];
    mapped(READ, (at, size) -> Native.readFloats(at, made, made.length));
    return made;
  }

  /**
   * Gives a copy of the elements of a tensor of float64.
   *
   * @return the elements, row-major
   */
  public double[] toDoubles() {
    double[] made = new double[lengthAs("double", DType.FLOAT64)];
    mapped(READ, (at, size) -> Native.readDoubles(at, made, made.length));
    return made;
  }

  /**
   * Gives a copy of the elements of a tensor of int64 or uint64.
   *
   * @return the elements, row-major; those of uint64 as their bits
   */
  public long[] toLongs() {
    long[] made = new long[lengthAs("long", DType.INT64, DType.UINT64)];
    mapped(READ, (at, size) -> Native.readLongs(at, made, made.length));
    return made;
  }

  /**
   * Gives a copy of the elements of a tensor of int32 or uint32.
   *
   * @return the elements, row-major; those of uint32 as their bits
   */
  public int[] toInts() {
    int[] made = new int[lengthAs("int", DType.INT32, DType.UINT32)];
    mapped(READ, (at, size) -> Native.readInts(at, made, made.length));
    return made;
  }

  /**
   * Gives a copy of the elements of a tensor of a type of 2 bytes.
   *
   * @return the elements' bits, row-major
   */
  public short[] toShorts() {
    short[] made = new short[lengthAs("short", DType.INT16, DType.UINT16, DType.FLOAT16, DType.BFLOAT16)];
    mapped(READ, (at, size) -> Native.readShorts(at, made, made.length));
    return made;
  }

  /**
   * Gives a copy of a tensor's memory, whatever its type is.
   *
   * @return the bytes
   */
  public byte[] toBytes() {
    long size = info().sizeBytes();
    if (size > Integer.MAX_VALUE - 8) throw EvenerException.argument("no array has room for " + size + " bytes");
    byte[] made = new byte[(int) size];
    mapped(READ, (at, bytes) -> Native.readBytes(at, made, made.length));
    return made;
  }

  /**
   * Gives a copy of the elements of a tensor of bool.
   *
   * @return the elements, row-major
   */
  public boolean[] toBooleans() {
    boolean[] made = new boolean[lengthAs("boolean", DType.BOOL)];
    byte[] bytes = toBytes();
    for (int i = 0; i < made.length; i++) made[i] = bytes[i] != 0;
    return made;
  }

  /**
   * Gives the elements of a tensor of strings.
   *
   * @return the elements, row-major
   */
  public String[] toStrings() {
    String[] made = new String[lengthAs("String", DType.STRING)];
    Scratch scratch = Scratch.get();
    long mark = scratch.mark();
    try {
      long offsets = scratch.allocate(8L * (made.length + 1));
      byte[] bytes =
          readBytes(256, (buffer, capacity, size, error) -> Raw.tensorGetStrings(handle(), buffer, capacity, offsets, made.length, size, error));
      for (int i = 0; i < made.length; i++) {
        int from = (int) scratch.getLong(offsets + 8L * i);
        made[i] = new String(bytes, from, (int) scratch.getLong(offsets + 8L * (i + 1)) - 1 - from, StandardCharsets.UTF_8);
      }
      return made;
    } finally {
      scratch.release(mark);
      Reference.reachabilityFence(this);
    }
  }

  /**
   * Gives the memory of a tensor of the CPU device, without a copy: a direct buffer in native byte order, read-only where the tensor is. It stays valid
   * whatever is closed: the memory goes when the collector has found the buffer, and those that were made of it, unused, and the tensor is closed. What
   * is to go at once is copied out by {@code toFloats} and its like instead.
   *
   * @return the bytes
   * @throws EvenerException with {@link Status#UNSUPPORTED} for strings and on other devices: see {@link #copyTo}
   */
  public ByteBuffer buffer() {
    TensorInfo info = info();
    if (info.sizeBytes() > Integer.MAX_VALUE) throw EvenerException.argument("no buffer has room for " + info);
    if (info.sizeBytes() == 0) return ByteBuffer.allocateDirect(0).order(ByteOrder.nativeOrder());
    long shared = out((handle, out, error) -> Raw.tensorToDlpack(handle, 0, out, error));
    try {
      ByteBuffer made = Native.bufferAt(Native.sharedData(shared), (int) info.sizeBytes());
      ByteBuffer view = (Native.sharedIsReadOnly(shared) ? made.asReadOnlyBuffer() : made).order(ByteOrder.nativeOrder());
      whenForgotten(made, () -> Native.endShared(shared)); // nothing fails behind it
      return view;
    } catch (RuntimeException | Error failure) {
      Native.endShared(shared);
      throw failure;
    }
  }

  // ---------------------------------------------------------------------------------------------------------- the rest

  /**
   * Gives what it is. No cost but the call.
   *
   * @return dtype, dims, bytes and device
   */
  public TensorInfo info() {
    Scratch scratch = Scratch.get();
    long mark = scratch.mark();
    try {
      long info = scratch.struct(Layout.TensorInfo.SIZE);
      call((handle, error) -> Raw.tensorGetInfo(handle, info, error));
      long[] dims = new long[scratch.getInt(info + Layout.TensorInfo.RANK)];
      for (int i = 0; i < dims.length; i++) dims[i] = scratch.getLong(info + Layout.TensorInfo.DIMS + 8L * i);
      int flags = scratch.getInt(info + Layout.TensorInfo.FLAGS);
      return new TensorInfo(
          DType.of(scratch.getInt(info + Layout.TensorInfo.DTYPE)),
          dims,
          scratch.getLong(info + Layout.TensorInfo.SIZE_BYTES),
          scratch.chars(info + Layout.TensorInfo.DEVICE, Layout.TensorInfo.DEVICE_BYTES),
          (flags & Numbers.EVN_TENSOR_READ_ONLY) != 0,
          (flags & Numbers.EVN_TENSOR_PINNED) != 0);
    } finally {
      scratch.release(mark);
    }
  }

  /**
   * Makes a tensor over a part of this one's memory, without a copy.
   *
   * @param first number of the first element of the part, in row-major order
   * @param dims the part's shape
   * @return the tensor, which the caller closes
   */
  public Tensor part(long first, long... dims) {
    Scratch scratch = Scratch.get();
    long mark = scratch.mark();
    try {
      long at = scratch.longs(dims);
      return new Tensor(out((handle, out, error) -> Raw.tensorCreateView(handle, first, at, dims.length, out, error)));
    } finally {
      scratch.release(mark);
    }
  }

  /**
   * Copies all bytes into another tensor of the same dtype and dims, on any device. Blocks until done.
   *
   * @param target what is written
   */
  public void copyInto(Tensor target) {
    call((handle, error) -> Raw.tensorCopy(handle, target.handle(), error));
    Reference.reachabilityFence(target);
  }

  /**
   * Makes a tensor of the same contents on a device.
   *
   * @param device of the same runtime
   * @return the tensor, which the caller closes
   */
  public Tensor copyTo(Device device) {
    long made = out((handle, out, error) -> Raw.tensorCopyTo(handle, device.handle(), out, error));
    Reference.reachabilityFence(device);
    return new Tensor(made);
  }

  /**
   * Has a device copy all bytes into another tensor of the same dtype and dims, behind events, and returns at once. The library keeps both until the copy
   * has ended; what lies in a wrapped buffer must neither be written nor looked at before the event.
   *
   * @param target what is written
   * @param behind events of the same runtime
   * @return the event of the copy's end, which the caller closes; its error is thrown where that is waited for
   */
  public Event copyAsync(Tensor target, Event... behind) {
    Scratch scratch = Scratch.get();
    long mark = scratch.mark();
    try {
      long events = scratch.handles(behind);
      return new Event(out((handle, out, error) -> Raw.tensorCopyAsync(handle, target.handle(), events, behind.length, out, error)));
    } finally {
      scratch.release(mark);
      Reference.reachabilityFence(target);
      Reference.reachabilityFence(behind);
    }
  }
}

package evener;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;

/**
 * A tensor in memory of the library, for as long as the method runs that got it: later its methods throw. Elements are copied in and out, so that nothing
 * of Java can reach that memory then.
 */
public final class TensorView {
  /** Whether the callback that views belong to still runs; copies hold its lock. */
  static final class Scope {
    private boolean hasEnded;

    synchronized void end() {
      hasEnded = true;
    }

    synchronized void copy(Runnable body) {
      if (hasEnded) throw new EvenerException(Status.WRONG_STATE, "the operator's method that got this has returned");
      body.run();
    }
  }

  private final Scope scope;
  private final TensorSpec spec;
  private final long data;
  private final long size;
  private final boolean isOutput;

  private TensorView(Scope scope, TensorSpec spec, long data, long size, boolean isOutput) {
    this.scope = scope;
    this.spec = spec;
    this.data = data;
    this.size = size;
    this.isOutput = isOutput;
  }

  /** Gives the views of an array of evn_tensor_view; null: not given, or not wanted. */
  static TensorView[] all(Scope scope, long at, int count, boolean areOutputs) {
    TensorView[] made = new TensorView[count];
    for (int i = 0; i < count; i++) made[i] = one(scope, at + (long) Layout.TensorView.SIZE * i, areOutputs);
    return made;
  }

  static TensorView one(Scope scope, long at, boolean isOutput) {
    ByteBuffer raw = Native.bufferAt(at, Layout.TensorView.SIZE).order(ByteOrder.nativeOrder());
    DType dtype = DType.of(raw.getInt(Layout.TensorView.DTYPE));
    if (dtype == DType.UNDEFINED) return null;
    int rank = raw.getInt(Layout.TensorView.RANK);
    boolean hasRank = rank != Numbers.EVN_UNKNOWN_RANK;
    long[] dims = new long[hasRank ? rank : 0];
    for (int i = 0; i < dims.length; i++) dims[i] = raw.getLong(Layout.TensorView.DIMS + 8 * i);
    TensorSpec spec = new TensorSpec(dtype, hasRank, dims);
    return new TensorView(scope, spec, raw.getLong(Layout.TensorView.DATA), raw.getLong(Layout.TensorView.SIZE_BYTES), isOutput);
  }

  /**
   * Gives dtype and dims as far as they are known.
   *
   * @return what is known
   */
  public TensorSpec spec() {
    return spec;
  }

  /**
   * Says whether the elements are there; in {@link Operator#infer} those of {@link OperatorDefinition#valueInputs} may be.
   *
   * @return whether they can be read
   */
  public boolean hasData() {
    return data != 0;
  }

  /** Gives the number of elements of `bytes` bytes, for which an array is made or was given. */
  private int length(int bytes, String array, DType... dtypes) {
    if (!Arrays.asList(dtypes).contains(spec.dtype())) throw EvenerException.argument("a tensor of " + spec.dtype() + " is no array of " + array);
    if (data == 0 && (!spec.hasRank() || count() != 0)) throw new EvenerException(Status.WRONG_STATE, "the value of this tensor is not known here");
    if (data == 0) return 0;
    return Math.toIntExact(size / bytes);
  }

  private long count() {
    long count = 1;
    for (long dim : spec.dims()) count *= dim < 0 ? 1 : dim;
    return count;
  }

  private void put(int given, int length, Runnable copy) {
    if (!isOutput) throw new EvenerException(Status.WRONG_STATE, "inputs must not be written");
    if (given != length) throw EvenerException.argument(given + " elements do not fill a tensor of " + length);
    if (length != 0) scope.copy(copy);
  }

  private static final DType[] LONGS = {DType.INT64, DType.UINT64};
  private static final DType[] INTS = {DType.INT32, DType.UINT32};
  private static final DType[] SHORTS = {DType.INT16, DType.UINT16, DType.FLOAT16, DType.BFLOAT16};

  /**
   * Gives a copy of elements of float32.
   *
   * @return the elements, row-major
   */
  public float[] toFloats() {
    float[] made = new float[length(4, "float", DType.FLOAT32)];
    if (made.length != 0) scope.copy(() -> Native.readFloats(data, made, made.length));
    return made;
  }

  /**
   * Gives a copy of elements of float64.
   *
   * @return the elements, row-major
   */
  public double[] toDoubles() {
    double[] made = new double[length(8, "double", DType.FLOAT64)];
    if (made.length != 0) scope.copy(() -> Native.readDoubles(data, made, made.length));
    return made;
  }

  /**
   * Gives a copy of elements of int64 or uint64.
   *
   * @return the elements, row-major
   */
  public long[] toLongs() {
    long[] made = new long[length(8, "long", LONGS)];
    if (made.length != 0) scope.copy(() -> Native.readLongs(data, made, made.length));
    return made;
  }

  /**
   * Gives a copy of elements of int32 or uint32.
   *
   * @return the elements, row-major
   */
  public int[] toInts() {
    int[] made = new int[length(4, "int", INTS)];
    if (made.length != 0) scope.copy(() -> Native.readInts(data, made, made.length));
    return made;
  }

  /**
   * Gives a copy of elements of 2 bytes.
   *
   * @return the elements' bits, row-major
   */
  public short[] toShorts() {
    short[] made = new short[length(2, "short", SHORTS)];
    if (made.length != 0) scope.copy(() -> Native.readShorts(data, made, made.length));
    return made;
  }

  /**
   * Gives a copy of the memory, of any type but strings.
   *
   * @return the bytes
   */
  public byte[] toBytes() {
    byte[] made = new byte[length(1, "byte", spec.dtype())];
    if (made.length != 0) scope.copy(() -> Native.readBytes(data, made, made.length));
    return made;
  }

  /**
   * Writes elements of float32.
   *
   * @param elements all of them, row-major
   */
  public void set(float[] elements) {
    put(elements.length, length(4, "float", DType.FLOAT32), () -> Native.writeFloats(data, elements, elements.length));
  }

  /**
   * Writes elements of float64.
   *
   * @param elements all of them, row-major
   */
  public void set(double[] elements) {
    put(elements.length, length(8, "double", DType.FLOAT64), () -> Native.writeDoubles(data, elements, elements.length));
  }

  /**
   * Writes elements of int64 or uint64.
   *
   * @param elements all of them, row-major
   */
  public void set(long[] elements) {
    put(elements.length, length(8, "long", LONGS), () -> Native.writeLongs(data, elements, elements.length));
  }

  /**
   * Writes elements of int32 or uint32.
   *
   * @param elements all of them, row-major
   */
  public void set(int[] elements) {
    put(elements.length, length(4, "int", INTS), () -> Native.writeInts(data, elements, elements.length));
  }

  /**
   * Writes elements of 2 bytes.
   *
   * @param elements the bits of all of them, row-major
   */
  public void set(short[] elements) {
    put(elements.length, length(2, "short", SHORTS), () -> Native.writeShorts(data, elements, elements.length));
  }

  /**
   * Writes the memory, of any type but strings.
   *
   * @param bytes all of it
   */
  public void set(byte[] bytes) {
    put(bytes.length, length(1, "byte", spec.dtype()), () -> Native.writeBytes(data, bytes, bytes.length));
  }
}

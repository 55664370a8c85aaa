package evener;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/**
 * Memory of C for the time of a call: a stack for each thread, of which a method marks where it begins and gives back all that it took. What the
 * stack has no room for is allocated, and freed with the mark. Callbacks that run inside of a call take theirs above it.
 *
 * <p>All that is handed out is zero (but errors), aligned to 8 bytes, and is read and written at its address through the methods here, which check that it lies
 * inside.
 */
final class Scratch {
  private static final int CHUNK = 8192;
  private static final ThreadLocal<Scratch> THREADS = ThreadLocal.withInitial(Scratch::new);

  private record Extra(ByteBuffer buffer, long base, long size) {}

  private final ByteBuffer chunk = ByteBuffer.allocateDirect(CHUNK).order(ByteOrder.nativeOrder());
  private final long base = Native.addressOf(chunk);
  private final List<Extra> extras = new ArrayList<>();
  private int used;

  static Scratch get() {
    return THREADS.get();
  }

  long mark() {
    return (long) extras.size() << 32 | used;
  }

  void release(long mark) {
    used = (int) mark;
    for (int count = (int) (mark >>> 32); extras.size() > count; ) Native.free(extras.remove(extras.size() - 1).base);
  }

  /** Gives memory, all zero. */
  long allocate(long size) {
    if (size < 0 || size > CHUNK - used) return allocateApart(size);
    int at = used;
    used += (int) (size + 7) & ~7;
    for (int i = at; i < used; i += 8) chunk.putLong(i, 0);
    return base + at;
  }

  private long allocateApart(long size) {
    long made = size < 0 ? 0 : Native.allocate(Math.max(size, 1));
    if (made == 0) {
      throw new EvenerException(Status.OUT_OF_MEMORY, "no memory for what a call is given", "", "", size, 0);
    }
    extras.add(new Extra(Native.bufferAt(made, (int) Math.min(size, Integer.MAX_VALUE)).order(ByteOrder.nativeOrder()), made, size));
    return made;
  }

  private ByteBuffer of(long address) {
    long at = address - base;
    if (at >= 0 && at < CHUNK) return chunk;
    return extra(address).buffer;
  }

  private Extra extra(long address) {
    for (int i = extras.size() - 1; i >= 0; i--) {
      Extra extra = extras.get(i);
      if (address - extra.base >= 0 && address - extra.base < extra.size) return extra;
    }
    throw new IndexOutOfBoundsException("an address outside of what was allocated");
  }

  private int at(long address) {
    long at = address - base;
    return (int) (at >= 0 && at < CHUNK ? at : address - extra(address).base);
  }

  void putInt(long address, int value) {
    of(address).putInt(at(address), value);
  }

  int getInt(long address) {
    return of(address).getInt(at(address));
  }

  void putLong(long address, long value) {
    of(address).putLong(at(address), value);
  }

  long getLong(long address) {
    return of(address).getLong(at(address));
  }

  void putDouble(long address, double value) {
    of(address).putDouble(at(address), value);
  }

  double getDouble(long address) {
    return of(address).getDouble(at(address));
  }

  void putByte(long address, byte value) {
    of(address).put(at(address), value);
  }

  /** Gives the text of an array of chars that ends in NUL, or at its end. */
  String chars(long address, int size) {
    byte[] bytes = new byte[size];
    of(address).get(at(address), bytes);
    int end = 0;
    while (end < size && bytes[end] != 0) end++;
    return new String(bytes, 0, end, StandardCharsets.UTF_8);
  }

  /** Gives a copy of bytes; NULL for none. */
  long bytes(byte[] bytes) {
    if (bytes.length == 0) return 0;
    long made = allocate(bytes.length);
    of(made).put(at(made), bytes);
    return made;
  }

  /** Gives bytes that are counted; no bytes have an address too. */
  long counted(byte[] bytes) {
    return bytes.length == 0 ? allocate(1) : bytes(bytes);
  }

  /** Gives a text that ends in NUL. */
  long text(String text) {
    if (text.indexOf('\0') >= 0) throw EvenerException.argument("there is a NUL in \"" + text.replace("\0", "\\0") + "\"");
    byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
    long made = allocate(bytes.length + 1L);
    of(made).put(at(made), bytes);
    return made;
  }

  /** Gives NULL for null. */
  long optional(String text) {
    return text == null ? 0 : text(text);
  }

  /** Gives an array of texts; NULL for none. */
  long texts(List<String> texts) {
    if (texts.isEmpty()) return 0;
    long made = allocate(8L * texts.size());
    for (int i = 0; i < texts.size(); i++) putLong(made + 8L * i, text(texts.get(i)));
    return made;
  }

  /** Gives an array of numbers; NULL for none. */
  long longs(long[] values) {
    if (values.length == 0) return 0;
    long made = allocate(8L * values.length);
    for (int i = 0; i < values.length; i++) putLong(made + 8L * i, values[i]);
    return made;
  }

  /** Gives the handles of objects: 0 for one that is null. NULL for none. */
  long handles(NativeObject[] objects) {
    if (objects.length == 0) return 0;
    long made = allocate(8L * objects.length);
    for (int i = 0; i < objects.length; i++) {
      if (objects[i] != null) putLong(made + 8L * i, objects[i].handle());
    }
    return made;
  }

  /** Gives a struct with its size in its first field, as all that the library is given have it. */
  long struct(int size) {
    long made = allocate(size);
    putInt(made, size);
    return made;
  }

  /** Gives an evn_error, of which no more than the size is set: the library writes the rest where it fails, and only then it is read. */
  long error() {
    if (Layout.Error.SIZE > CHUNK - used) return struct(Layout.Error.SIZE);
    int at = used;
    used += Layout.Error.SIZE + 7 & ~7;
    chunk.putInt(at + Layout.Error.STRUCT_SIZE, Layout.Error.SIZE);
    return base + at;
  }

  /** Throws what a call came to, unless that is EVN_OK. */
  void check(int status, long error) {
    if (status != Numbers.EVN_OK) throw failure(status, error);
  }

  EvenerException failure(int status, long error) {
    return new EvenerException(
        Status.of(status),
        chars(error + Layout.Error.MESSAGE, Layout.Error.MESSAGE_BYTES),
        chars(error + Layout.Error.NODE, Layout.Error.NODE_BYTES),
        chars(error + Layout.Error.DEVICE, Layout.Error.DEVICE_BYTES),
        getLong(error + Layout.Error.BYTES_REQUESTED),
        getLong(error + Layout.Error.BYTES_AVAILABLE));
  }
}

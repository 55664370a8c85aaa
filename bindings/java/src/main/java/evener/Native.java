package evener;

import java.nio.ByteBuffer;

/** The methods of glue.c, which {@link Library#ready} loads first: the library, references that C holds, and memory. */
final class Native {
  static final int OPENED = 0;
  static final int NOT_OPENED = 1;
  static final int NO_SYMBOL = 2;
  static final int OTHER_VERSION = 3;
  static final int OTHER_LAYOUT = 4;

  /** Addresses of the glue's callbacks. */
  static final long RELEASE = callback(0);

  static final long DELETE = callback(1);
  static final long LOG = callback(2);
  static final long DONE = callback(3);
  static final long PROGRESS = callback(4);
  static final long INFER = callback(5);
  static final long RUN = callback(6);
  static final long REDUCE = callback(7);

  private Native() {}

  static native long open(long path, long reason, int capacity);

  static native long now();

  /** Gives C a reference of an object, which somebody is to drop. */
  static long hold(Object what) {
    long held = reference(what);
    if (held == 0) throw new EvenerException(Status.OUT_OF_MEMORY, "the Java VM has no memory for a reference");
    return held;
  }

  private static native long reference(Object what);

  static native void drop(long held);

  static native long allocate(long size);

  static native void free(long address);

  static native long addressOf(ByteBuffer buffer);

  static native ByteBuffer bufferAt(long address, int size);

  static native byte[] textAt(long address);

  static native void writeBytes(long to, byte[] from, int count);

  static native void readBytes(long from, byte[] to, int count);

  static native void writeShorts(long to, short[] from, int count);

  static native void readShorts(long from, short[] to, int count);

  static native void writeInts(long to, int[] from, int count);

  static native void readInts(long from, int[] to, int count);

  static native void writeLongs(long to, long[] from, int count);

  static native void readLongs(long from, long[] to, int count);

  static native void writeFloats(long to, float[] from, int count);

  static native void readFloats(long from, float[] to, int count);

  static native void writeDoubles(long to, double[] from, int count);

  static native void readDoubles(long from, double[] to, int count);

  static native long sharedData(long managed);

  static native boolean sharedIsReadOnly(long managed);

  static native void endShared(long managed);

  static native long callback(int which);
}

package evener;

import java.lang.ref.Cleaner;
import java.lang.ref.Reference;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * What owns something of the library's. {@link #close} ends the hold; it may be called twice, in any order, from any thread, and while calls that use
 * the object run on other threads, which end normally. What is used after that throws an {@link EvenerException} with {@link Status#INVALID_HANDLE}.
 * What is forgotten is closed when the collector finds it, at a time that nobody knows: it does not see how much memory that is.
 */
public abstract class NativeObject implements AutoCloseable {
  private static final Cleaner CLEANER = Cleaner.create();

  /**
   * A process has no more than 262,144 handles, and objects of a few bytes do not bring the collector to look whether they are still used: it is asked to
   * each time that so many have been made, where many are there.
   */
  private static final int LOOK_EVERY = 1 << 16;

  private static final AtomicInteger MADE = new AtomicInteger();
  private static final AtomicInteger ALIVE = new AtomicInteger();

  /** Ends a handle. */
  interface Release {
    int release(long handle);
  }

  /** What the cleaner holds, which must not reach the object. A handle is a slot and a generation: an old one is an error, never another object. */
  private static final class Hold implements Runnable {
    private volatile long handle;
    private final Release release;

    Hold(long handle, Release release) {
      this.handle = handle;
      this.release = release;
    }

    @Override
    public void run() {
      long ended = handle;
      handle = 0;
      if (ended != 0) release.release(ended);
      ALIVE.decrementAndGet();
    }
  }

  private final Hold hold;
  private final Cleaner.Cleanable cleanable;
  private final String what;

  NativeObject(String what, long handle, Release release) {
    this.what = what;
    hold = new Hold(handle, release);
    cleanable = CLEANER.register(this, hold);
    int alive = ALIVE.incrementAndGet();
    if (MADE.incrementAndGet() % LOOK_EVERY == 0 && alive > LOOK_EVERY / 2) look();
  }

  /** Has the collector look, and waits while the cleaner, which has a thread of its own, gets on with what was found. */
  private static void look() {
    System.gc();
    try {
      int before = ALIVE.get();
      for (int idle = 0; idle < 50; idle++) {
        Thread.sleep(2);
        int now = ALIVE.get();
        if (now < before) idle = 0;
        before = now;
      }
    } catch (InterruptedException interrupted) {
      Thread.currentThread().interrupt();
    }
  }

  /** Has the collector call something when it finds that an object is not used any more. */
  static void whenForgotten(Object object, Runnable action) {
    CLEANER.register(object, action);
  }

  /** Gives the handle; whoever uses it has a {@link Reference#reachabilityFence} of the object behind the call. */
  long handle() {
    long handle = hold.handle;
    if (handle == 0) throw new EvenerException(Status.INVALID_HANDLE, "the " + what + " is closed");
    return handle;
  }

  /** Gives up the handle without ending it: the library has. */
  final void forget() {
    hold.handle = 0;
    cleanable.clean();
  }

  /** Ends the hold. What was made of it goes on, as far as it is in use. It never fails; the second call does nothing. */
  @Override
  public void close() {
    cleanable.clean();
  }

  // ---------------------------------------------------------------------------------------------- how calls are made

  /** A function that is given the handle and an evn_error. */
  interface Call {
    int call(long handle, long error);
  }

  /** A function that sets something: what `out` is the address of. */
  interface OutCall {
    int call(long handle, long out, long error);
  }

  /** A function that writes text. */
  interface TextCall {
    int call(long buffer, long capacity, long size, long error);
  }

  final void call(Call call) {
    Scratch scratch = Scratch.get();
    long mark = scratch.mark();
    try {
      long error = scratch.error();
      int status = call.call(handle(), error);
      if (status != Numbers.EVN_OK) throw scratch.failure(status, error);
    } finally {
      scratch.release(mark);
      Reference.reachabilityFence(this);
    }
  }

  /** Calls a function that sets a handle, a number or a pointer. */
  final long out(OutCall call) {
    Scratch scratch = Scratch.get();
    long mark = scratch.mark();
    try {
      long out = scratch.allocate(8);
      long error = scratch.error();
      int status = call.call(handle(), out, error);
      if (status != Numbers.EVN_OK) throw scratch.failure(status, error);
      return scratch.getLong(out);
    } finally {
      scratch.release(mark);
      Reference.reachabilityFence(this);
    }
  }

  final String text(int first, TextCall call) {
    try {
      return readText(first, call);
    } finally {
      Reference.reachabilityFence(this);
    }
  }

  /** Reads what a function writes. It is called again with as much room as it asks for: what is written may grow meanwhile. */
  static String readText(int first, TextCall call) {
    byte[] bytes = readBytes(first, call);
    return bytes.length == 0 ? "" : new String(bytes, 0, bytes.length - 1, StandardCharsets.UTF_8);
  }

  static byte[] readBytes(int first, TextCall call) {
    Scratch scratch = Scratch.get();
    for (long capacity = first; ; ) {
      long mark = scratch.mark();
      try {
        long size = scratch.allocate(8);
        long error = scratch.error();
        long buffer = scratch.allocate(capacity);
        int status = call.call(buffer, capacity, size, error);
        if (status == Numbers.EVN_OK) {
          int written = Math.toIntExact(scratch.getLong(size));
          byte[] made = new byte[written];
          Native.readBytes(buffer, made, written);
          return made;
        }
        long wanted = scratch.getLong(error + Layout.Error.BYTES_REQUESTED);
        if (status != Numbers.EVN_ERROR_BUFFER_TOO_SMALL || wanted <= capacity || wanted > Integer.MAX_VALUE) throw scratch.failure(status, error);
        capacity = wanted;
      } finally {
        scratch.release(mark);
      }
    }
  }
}

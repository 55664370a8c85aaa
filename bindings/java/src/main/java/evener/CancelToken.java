package evener;

import java.time.Duration;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/** Asks work that it was given to to stop. One token may serve many runs; there is no way back. */
public final class CancelToken extends NativeObject {
  private final Set<Request<?>> requests = ConcurrentHashMap.newKeySet();
  private volatile boolean isCancelled;

  /**
   * Makes a token.
   *
   * @throws EvenerException with {@link Status#OUT_OF_MEMORY} or {@link Status#LIMIT}
   */
  public CancelToken() {
    super("token", make(), Raw::cancelRelease);
  }

  static long make() {
    Library.ready();
    Scratch scratch = Scratch.get();
    long mark = scratch.mark();
    try {
      long out = scratch.allocate(8);
      long error = scratch.error();
      scratch.check(Raw.cancelCreate(out, error), error);
      return scratch.getLong(out);
    } finally {
      scratch.release(mark);
    }
  }

  /** Asks all work that has the token to stop, and all that will be given it. Returns at once. */
  public void cancel() {
    int status = Raw.cancelRequest(handle());
    isCancelled = true;
    for (Request<?> request : requests) request.stop();
    java.lang.ref.Reference.reachabilityFence(this);
    if (status != Numbers.EVN_OK) throw new EvenerException(Status.of(status), "the token is closed");
  }

  /** A request has a token of its own, by which its future can end it; this one reaches it too. */
  void add(Request<?> request) {
    requests.add(request);
    if (isCancelled) request.stop();
  }

  void remove(Request<?> request) {
    requests.remove(request);
  }

  static long handleOf(CancelToken token) {
    return token == null ? 0 : token.handle();
  }

  /** Gives a duration in nanoseconds, of which 0 would mean none. */
  static long nanoseconds(Duration duration) {
    if (duration == null) return 0;
    if (duration.isNegative()) throw EvenerException.argument("a time of " + duration);
    try {
      return Math.max(1, duration.toNanos());
    } catch (ArithmeticException tooLong) {
      return Long.MAX_VALUE;
    }
  }
}

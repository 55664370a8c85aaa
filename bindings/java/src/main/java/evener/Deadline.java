package evener;

import java.time.Duration;

/**
 * When, and by what, a call that blocks may be ended: {@code new Deadline().after(Duration.ofSeconds(5)).cancel(token)}. It is read when the call begins.
 */
public final class Deadline {
  static final Deadline NONE = new Deadline();

  private long at;
  private CancelToken cancel;

  /** Makes one that ends nothing. */
  public Deadline() {}

  /**
   * Ends the call so long after now.
   *
   * @param time from now on
   * @return this
   */
  public Deadline after(Duration time) {
    at = timeAfter(time);
    return this;
  }

  /**
   * Ends the call at a time.
   *
   * @param nanoseconds of {@link Evener#now}; 0: none
   * @return this
   */
  public Deadline at(long nanoseconds) {
    at = nanoseconds;
    return this;
  }

  /**
   * Ends the call when a token is cancelled.
   *
   * @param token the token; null: none
   * @return this
   */
  public Deadline cancel(CancelToken token) {
    cancel = token;
    return this;
  }

  long nanoseconds() {
    return at;
  }

  CancelToken token() {
    return cancel;
  }

  static long timeAfter(Duration time) {
    long left = CancelToken.nanoseconds(time);
    long now = Evener.now();
    return left > Long.MAX_VALUE - now ? Long.MAX_VALUE : now + left;
  }
}

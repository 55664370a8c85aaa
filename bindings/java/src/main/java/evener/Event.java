package evener;

import java.time.Duration;

/** The end of something that a device does. */
public final class Event extends NativeObject {
  Event(long handle) {
    super("event", handle, Raw::eventRelease);
  }

  /** Waits until it has happened. An error of what it stands for is thrown here. */
  public void await() {
    call((handle, error) -> Raw.eventWait(handle, -1L, error));
  }

  /**
   * Waits until it has happened, or so long.
   *
   * @param time at most; zero only looks
   * @return whether it has happened
   */
  public boolean await(Duration time) {
    long left = time.isZero() ? 0 : CancelToken.nanoseconds(time);
    try {
      call((handle, error) -> Raw.eventWait(handle, left, error));
      return true;
    } catch (EvenerException failure) {
      if (failure.status() != Status.TIMEOUT) throw failure;
      return false;
    }
  }
}

package evener;

/** Says where and why a call failed. */
public class EvenerException extends RuntimeException {
  private static final long serialVersionUID = 1;

  /** What the call came to. */
  private final Status status;

  /** The graph node concerned. */
  private final String node;

  /** The device concerned. */
  private final String device;

  /** Bytes asked for. */
  private final long bytesRequested;

  /** Bytes that were left. */
  private final long bytesAvailable;

  /** What the library says, without status, node and device. */
  private final String detail;

  EvenerException(Status status, String message, String node, String device, long bytesRequested, long bytesAvailable) {
    super(status + ": " + message + (node.isEmpty() ? "" : " [node " + node + "]") + (device.isEmpty() ? "" : " [device " + device + "]"));
    this.status = status;
    this.node = node;
    this.device = device;
    this.bytesRequested = bytesRequested;
    this.bytesAvailable = bytesAvailable;
    this.detail = message;
  }

  /**
   * Makes an error, for what a custom operator has to say.
   *
   * @param status what it came to
   * @param message why, in one line
   */
  public EvenerException(Status status, String message) {
    this(status, message, "", "", 0, 0);
  }

  static EvenerException argument(String message) {
    return new EvenerException(Status.INVALID_ARGUMENT, message);
  }

  /**
   * Gives what the call came to.
   *
   * @return the status, never {@link Status#OK}
   */
  public Status status() {
    return status;
  }

  /**
   * Gives what the library says, without status, node and device.
   *
   * @return one line
   */
  public String detail() {
    return detail;
  }

  /**
   * Gives the graph node concerned.
   *
   * @return its name, or ""
   */
  public String node() {
    return node;
  }

  /**
   * Gives the device concerned.
   *
   * @return its name, or ""
   */
  public String device() {
    return device;
  }

  /**
   * Gives, for memory, limits and buffers, the bytes that were asked for.
   *
   * @return the bytes, else 0; one that is negative is 2^64 more
   */
  public long bytesRequested() {
    return bytesRequested;
  }

  /**
   * Gives, for memory and limits, the bytes that were left.
   *
   * @return the bytes, else 0; one that is negative is 2^64 more
   */
  public long bytesAvailable() {
    return bytesAvailable;
  }
}

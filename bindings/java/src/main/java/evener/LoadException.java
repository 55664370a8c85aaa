package evener;

/** Says why there is no library. */
public final class LoadException extends EvenerException {
  private static final long serialVersionUID = 1;

  LoadException(String library, String reason, Throwable cause) {
    super(Status.IO, "the Evener library " + library + " cannot be opened: " + reason);
    if (cause != null) initCause(cause);
  }
}

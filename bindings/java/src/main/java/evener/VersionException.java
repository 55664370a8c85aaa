package evener;

/** Says that the library does not fit this package. Versions are major &lt;&lt; 16 | minor &lt;&lt; 8 | patch. */
public final class VersionException extends EvenerException {
  private static final long serialVersionUID = 1;

  /** The version that this package was made for. */
  private final int expected;

  /** The library's. */
  private final int found;

  VersionException(String library, int expected, int found) {
    super(Status.VERSION, library + " does not fit this package: expected ABI " + dotted(expected) + ", found " + dotted(found));
    this.expected = expected;
    this.found = found;
  }

  /** A library of a version that fits, but with a struct that lies otherwise: `layout` says which. */
  VersionException(String library, int expected, int found, String layout) {
    super(Status.VERSION, library + " does not fit this package: " + layout);
    this.expected = expected;
    this.found = found;
  }

  private static String dotted(int version) {
    return (version >>> 16) + "." + (version >>> 8 & 255) + "." + (version & 255);
  }

  /**
   * Gives the version that this package was made for.
   *
   * @return the number
   */
  public int expected() {
    return expected;
  }

  /**
   * Gives the library's version.
   *
   * @return the number; 0: it does not say
   */
  public int found() {
    return found;
  }
}

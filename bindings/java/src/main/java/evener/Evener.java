package evener;

import java.nio.file.Path;

/**
 * The library itself. It is opened when it is first needed: the file that {@link #load} or the system property {@code evener.library} or the environment
 * variable {@code EVENER_LIBRARY} names, else the one in this package's jar.
 */
public final class Evener {
  private Evener() {}

  /**
   * Opens the library of a file. It is opened once in a process.
   *
   * @param path the file
   * @throws LoadException it cannot be opened, or is no Evener library
   * @throws VersionException it does not fit this package; the message says both versions
   * @throws EvenerException another one is open already ({@link Status#WRONG_STATE})
   */
  public static void load(Path path) {
    Library.load(path);
  }

  /**
   * Gives the library's version.
   *
   * @return the version, as "0.3.0"
   */
  public static String version() {
    Library.ready();
    return Library.textAt(Raw.version());
  }

  /**
   * Writes what is done to models so that they run faster.
   *
   * @param format {@link Format#TEXT} or {@link Format#JSON}: [{"name", "when", "summary"}]
   * @return the list of passes
   */
  public static String describePasses(Format format) {
    Library.ready();
    return NativeObject.readText(1 << 14, (buffer, capacity, size, error) -> Raw.describePasses(format.value(), buffer, capacity, size, error));
  }

  /**
   * Gives the clock of deadlines, CLOCK_MONOTONIC.
   *
   * @return nanoseconds
   */
  public static long now() {
    Library.ready();
    return Native.now();
  }
}

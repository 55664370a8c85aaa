package evener;

import java.nio.charset.StandardCharsets;
import java.nio.file.Path;

/** The library that the process has open, which is opened when it is first needed: nothing of it is linked. */
final class Library {
  private static final int REASON_BYTES = 1024;
  private static volatile String opened; // null: not yet
  private static boolean isGlueLoaded;

  private Library() {}

  /** Opens the library where it is not open yet. */
  static void ready() {
    if (opened == null) openDefault();
  }

  private static synchronized void openDefault() {
    if (opened != null) return;
    String path = System.getProperty("evener.library");
    if (path == null || path.isEmpty()) path = System.getenv("EVENER_LIBRARY");
    if (path != null && !path.isEmpty()) {
      open(path, path);
      return;
    }
    if (!NativeFiles.has(NativeFiles.LIBRARY)) {
      throw new LoadException(
          NativeFiles.LIBRARY,
          "neither the property evener.library nor the variable EVENER_LIBRARY names one, and this jar has none for the platform " + NativeFiles.platform(),
          null);
    }
    NativeFiles.extracted(NativeFiles.LIBRARY, file -> open(file.toString(), "the jar's " + NativeFiles.LIBRARY));
  }

  static synchronized void load(Path path) {
    String name = path.toAbsolutePath().toString(); // a bare name would be searched for by the system's loader
    if (opened == null) {
      open(name, name);
    } else if (!opened.equals(name)) {
      throw new EvenerException(Status.WRONG_STATE, "the library " + opened + " is open already, and cannot be " + name);
    }
  }

  private static void open(String path, String name) {
    if (!isGlueLoaded) NativeFiles.loadGlue();
    isGlueLoaded = true;
    Scratch scratch = Scratch.get();
    long mark = scratch.mark();
    try {
      long reason = scratch.allocate(REASON_BYTES);
      long outcome = Native.open(scratch.text(path), reason, REASON_BYTES);
      int found = (int) (outcome >>> 8);
      switch ((int) (outcome & 0xff)) {
        case Native.OPENED:
          opened = name;
          return;
        case Native.OTHER_VERSION:
          throw new VersionException(name, Numbers.EVN_VERSION_NUMBER, found);
        case Native.OTHER_LAYOUT:
          throw new VersionException(name, Numbers.EVN_VERSION_NUMBER, found, textAt(reason));
        case Native.NO_SYMBOL:
          throw new LoadException(name, "it is no Evener library of version 0.2 or later: " + textAt(reason), null);
        default:
          throw new LoadException(name, textAt(reason), null);
      }
    } finally {
      scratch.release(mark);
    }
  }

  /** Gives a text that ends in NUL; NULL gives "". What is no UTF-8 becomes replacement characters. */
  static String textAt(long address) {
    return new String(Native.textAt(address), StandardCharsets.UTF_8);
  }
}

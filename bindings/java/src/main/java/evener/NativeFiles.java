package evener;

import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;

/** Shared objects that lie in the jar, in a folder for each platform. The loader of the system reads files alone: they are written to one. */
final class NativeFiles {
  static final String GLUE = "libevener_java.so";
  static final String LIBRARY = "libevener.so";

  private NativeFiles() {}

  /** Gives the folder of this platform in the jar. */
  static String platform() {
    String system = System.getProperty("os.name", "").toLowerCase(Locale.ROOT);
    String machine = System.getProperty("os.arch", "").toLowerCase(Locale.ROOT);
    if (machine.equals("amd64")) machine = "x86_64";
    return system + "-" + machine;
  }

  private static String resource(String name) {
    return "/evener/native/" + platform() + "/" + name;
  }

  static boolean has(String name) {
    return NativeFiles.class.getResource(resource(name)) != null;
  }

  /** What is done with a file that was taken out of the jar; it is gone afterwards. */
  interface Use {
    void with(Path file);
  }

  /**
   * Writes a shared object of the jar to a folder of its own, which nobody else may enter and whose name cannot be guessed, and removes both when
   * it has been loaded: what is mapped stays. Where that fails they go when the machine ends.
   */
  static void extracted(String name, Use use) {
    List<Path> written = new ArrayList<>();
    try {
      if (!has(name)) throw new LoadException(name, "this jar has none for the platform " + platform(), null);
      Path folder = Files.createTempDirectory("evener-", PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------")));
      written.add(folder);
      write(name, folder, written);
      use.with(folder.resolve(name));
    } catch (IOException | UnsupportedOperationException failure) {
      throw new LoadException(name, "it cannot be taken out of the jar to a folder of java.io.tmpdir: " + failure, failure);
    } finally {
      remove(written);
    }
  }

  private static void write(String name, Path folder, List<Path> written) throws IOException {
    Path file = folder.resolve(name);
    written.add(file);
    try (InputStream from = NativeFiles.class.getResourceAsStream(resource(name))) {
      Files.copy(from, file);
    }
  }

  private static void remove(List<Path> written) {
    try {
      for (int i = written.size() - 1; i >= 0; i--) Files.deleteIfExists(written.get(i));
    } catch (IOException failure) {
      for (Path path : written) path.toFile().deleteOnExit(); // the folder first, as the last one that is named goes first
    }
  }

  static void loadGlue() {
    extracted(
        GLUE,
        file -> {
          try {
            System.load(file.toString());
          } catch (UnsatisfiedLinkError failure) {
            throw new LoadException(GLUE, failure.getMessage() + " (java.io.tmpdir may name a folder that programs can be run from)", failure);
          }
        });
  }
}

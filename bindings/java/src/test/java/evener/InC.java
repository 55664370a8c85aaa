package evener;

import java.nio.file.Files;
import java.nio.file.Path;

/** The functions of src/test/native/loop.c, which are compiled when they are first needed. */
final class InC {
  static {
    load();
  }

  private InC() {}

  private static void load() {
    try {
      Path folder = Files.createTempDirectory("evener-test-");
      Path made = folder.resolve("loop.so");
      String include = Path.of(System.getProperty("java.home"), "include").toString();
      Process process =
          new ProcessBuilder(
                  "cc", "-std=c11", "-D_GNU_SOURCE", "-O2", "-shared", "-fPIC", "-I" + include, "-I" + include + "/linux", "-Isrc/main/native", "-o", made.toString(),
                  "src/test/native/loop.c", "-ldl")
              .inheritIO()
              .start();
      if (process.waitFor() != 0) throw new AssertionError("src/test/native/loop.c cannot be compiled");
      System.load(made.toString());
      Files.delete(made);
      Files.delete(folder);
    } catch (java.io.IOException | InterruptedException failure) {
      throw new AssertionError(failure);
    }
  }

  static native long runs(byte[] path, long session, long input, long output, int count);

  static native void misuse();
}

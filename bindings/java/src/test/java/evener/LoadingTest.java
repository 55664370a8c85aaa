package evener;

import static evener.Tiny.contains;
import static evener.Tiny.fails;
import static org.junit.jupiter.api.Assertions.assertEquals;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Each way to open a library needs a process of its own, in which main runs. */
class LoadingTest {
  private static final String EXPECTED =
      "expected ABI " + Numbers.EVN_VERSION_MAJOR + "." + Numbers.EVN_VERSION_MINOR + "." + Numbers.EVN_VERSION_PATCH;

  /** Prints what opening a library comes to. */
  public static void main(String[] arguments) {
    try {
      if (arguments.length > 0) Evener.load(Path.of(arguments[0]));
      System.out.println("opened " + Evener.version());
    } catch (EvenerException failure) {
      System.out.println(failure.getClass().getSimpleName() + "|" + failure.status() + "|" + failure.detail());
      try {
        System.out.println("opened " + Evener.version());
      } catch (EvenerException again) {
        System.out.println("again " + again.status());
      }
    }
  }

  private static String run(Map<String, String> environment, List<String> flags, String... arguments) throws Exception {
    List<String> command = new ArrayList<>(List.of(Path.of(System.getProperty("java.home"), "bin", "java").toString()));
    command.addAll(CheckTest.checks());
    command.addAll(flags);
    command.addAll(List.of("-cp", System.getProperty("java.class.path"), LoadingTest.class.getName()));
    command.addAll(List.of(arguments));
    ProcessBuilder builder = new ProcessBuilder(command).redirectErrorStream(true);
    builder.environment().remove("EVENER_LIBRARY");
    builder.environment().putAll(environment);
    Process process = builder.start();
    String text = new String(process.getInputStream().readAllBytes());
    assertEquals(0, process.waitFor(), text);
    return text;
  }

  private static String compiled(Path folder, String name, String source) throws Exception {
    Path file = Files.writeString(folder.resolve(name + ".c"), source);
    String made = folder.resolve(name + ".so").toString();
    Process process = new ProcessBuilder("cc", "-shared", "-fPIC", "-o", made, file.toString()).inheritIO().start();
    assertEquals(0, process.waitFor());
    return made;
  }

  @Test
  void aLibraryIsNamedInThreeWays() throws Exception {
    String library = System.getenv("EVENER_LIBRARY");
    String opened = "opened " + Evener.version() + "\n";
    assertEquals(opened, run(Map.of("EVENER_LIBRARY", library), List.of()));
    assertEquals(opened, run(Map.of("EVENER_LIBRARY", "/nowhere.so"), List.of("-Devener.library=" + library)));
    assertEquals(opened, run(Map.of("EVENER_LIBRARY", "/nowhere.so"), List.of("-Devener.library=/nowhere.so"), library));
    Evener.load(Path.of(library));
    fails(Status.WRONG_STATE, library, () -> Evener.load(Path.of("/another.so")));
  }

  @Test
  void aLibraryThatIsNotThereIsAnError() throws Exception {
    contains(run(Map.of("EVENER_LIBRARY", "/nowhere.so"), List.of()), "LoadException|IO|the Evener library /nowhere.so cannot be opened: ");
    contains(run(Map.of(), List.of("-Dos.arch=z80")), "z80");
  }

  @Test
  void aLibraryThatDoesNotFitIsAnErrorWithBothVersions(@TempDir Path folder) throws Exception {
    String number = "unsigned evn_version_number(void) { return 1u << 8 | 7; }\n";
    String none = compiled(folder, "none", "int x;");
    String old = compiled(folder, "old", number + "int evn_get_api(unsigned version, const void **api) { return 15; }");
    String later =
        compiled(
            folder,
            "short",
            "static const unsigned table[] = {16, 0x10000, 0, 0};\nint evn_get_api(unsigned version, const void **api) { *api = table; return 0; }");
    contains(run(Map.of("EVENER_LIBRARY", none), List.of()), "LoadException|IO|");
    contains(run(Map.of("EVENER_LIBRARY", none), List.of()), "it is no Evener library of version 0.2 or later: ");
    contains(run(Map.of("EVENER_LIBRARY", old), List.of()), "VersionException|VERSION|" + old + " does not fit this package: " + EXPECTED + ", found 0.1.7\n");
    contains(run(Map.of("EVENER_LIBRARY", later), List.of()), EXPECTED + ", found 1.0.0\nagain VERSION");
    String otherwise =
        compiled(
            folder,
            "otherwise",
            "static int no(void) { return 1; }\nstatic struct { unsigned size, version; int (*all[400])(void); } table = {3208, " + Numbers.EVN_VERSION_NUMBER + ", {[0 ... 399] = no}};\n"
                + "int evn_get_api(unsigned version, const void **api) { *api = &table; return 0; }");
    contains(run(Map.of("EVENER_LIBRARY", otherwise), List.of()), "does not fit this package: expected evn_error at byte 0 with 728 bytes, found it nowhere");
    // One that does not fit is no obstacle for one that does.
    contains(run(Map.of("EVENER_LIBRARY", System.getenv("EVENER_LIBRARY")), List.of(), old), "found 0.1.7\nopened 0.");
  }

  @Test
  void nothingIsLeftInTheTemporaryFolder(@TempDir Path folder) throws Exception {
    contains(run(Map.of("EVENER_LIBRARY", System.getenv("EVENER_LIBRARY")), List.of("-Djava.io.tmpdir=" + folder)), "opened");
    try (var files = Files.list(folder)) {
      assertEquals(List.of(), files.toList());
    }
    contains(run(Map.of("EVENER_LIBRARY", "/nowhere.so"), List.of("-Djava.io.tmpdir=/nowhere")), "java.io.tmpdir");
  }

  /** What is forgotten leaves handles for more, also where the heap is so large that the collector has no reason to look. */
  @Test
  void forgottenObjectsDoNotUseUpTheHandles() throws Exception {
    List<String> command = new ArrayList<>(List.of(Path.of(System.getProperty("java.home"), "bin", "java").toString(), "-Xmx3g", "-Xmn2g"));
    command.addAll(CheckTest.checks());
    command.addAll(List.of("-cp", System.getProperty("java.class.path"), Forgets.class.getName()));
    Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
    String text = new String(process.getInputStream().readAllBytes());
    assertEquals(0, process.waitFor(), text);
    assertEquals("forgot 400000\n", text);
  }

  /** What that process runs. */
  static final class Forgets {
    private Forgets() {}

    public static void main(String[] arguments) {
      int made = 0;
      while (made < 400000) {
        new CancelToken();
        made++;
      }
      System.out.println("forgot " + made);
    }
  }

  /** A process that ends with everything open, and threads of the library attached, ends. */
  @Test
  void aProcessEndsWithEverythingOpen() throws Exception {
    List<String> command = new ArrayList<>(List.of(Path.of(System.getProperty("java.home"), "bin", "java").toString()));
    command.addAll(CheckTest.checks());
    command.addAll(List.of("-cp", System.getProperty("java.class.path"), LeftOpen.class.getName()));
    for (int i = 0; i < 10; i++) {
      Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
      String text = new String(process.getInputStream().readAllBytes());
      assertEquals(0, process.waitFor(), text);
      assertEquals("left open\n", text);
    }
  }

  /** What that process runs. */
  static final class LeftOpen {
    private LeftOpen() {}

    public static void main(String[] arguments) {
      Runtime runtime = new Runtime(Tiny.options().log(LogLevel.DEBUG, record -> record.fields()));
      Session session = Tiny.session(runtime, Tiny.twice());
      Tiny.Gate gate = new Tiny.Gate(runtime);
      Session shut = Tiny.session(runtime, Tiny.custom("Gate"));
      for (int i = 0; i < 20; i++) session.submit(null, Tiny.floats(runtime, i)).join();
      shut.submit(null, Tiny.floats(runtime, 1));
      gate.began.acquireUninterruptibly();
      System.out.println("left open");
      System.exit(0);
    }
  }
}

package evener;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.management.ManagementFactory;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.nio.file.Path;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.junit.jupiter.api.Test;

class CheckTest {
  /** Gives the flags by which the machine checks what native methods do, and allows them, for processes that tests start. */
  static List<String> checks() {
    return ManagementFactory.getRuntimeMXBean().getInputArguments().stream().filter(flag -> flag.startsWith("-Xcheck") || flag.startsWith("--enable-native-access")).toList();
  }

  /** Native methods are looked for when they are first called, which for some of them no test does. */
  @Test
  void everyNativeMethodIsInTheGlue() throws Exception {
    String glue = Path.of(Raw.class.getResource("/evener/native/" + NativeFiles.platform() + "/" + NativeFiles.GLUE).toURI()).toString();
    Process process = new ProcessBuilder("nm", "-D", "--defined-only", glue).redirectError(ProcessBuilder.Redirect.INHERIT).start();
    Set<String> symbols = new HashSet<>(List.of(new String(process.getInputStream().readAllBytes()).split("\\s+")));
    assertEquals(0, process.waitFor());
    int count = 0;
    for (Class<?> of : List.of(Raw.class, Native.class)) {
      for (Method method : of.getDeclaredMethods()) {
        if (!Modifier.isNative(method.getModifiers())) continue;
        String name = "Java_evener_" + of.getSimpleName() + "_" + method.getName().replace("_", "_1");
        assertTrue(symbols.contains(name), name);
        count++;
      }
    }
    assertTrue(count > 180);
  }

  /** With -Xcheck:jni this makes the one warning that scripts/test_java wants to see: where it sees none, it would see no other either. */
  @Test
  void aMistakeIsSeen() {
    assertEquals("meant", assertThrows(IllegalStateException.class, InC::misuse).getMessage());
  }
}

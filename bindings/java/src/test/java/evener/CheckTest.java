package evener;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.lang.management.ManagementFactory;
import java.util.List;
import org.junit.jupiter.api.Test;

class CheckTest {
  /** Gives the flags by which the machine checks what native methods do, for processes that tests start. */
  static List<String> checks() {
    return ManagementFactory.getRuntimeMXBean().getInputArguments().stream().filter(flag -> flag.startsWith("-Xcheck")).toList();
  }

  /** With -Xcheck:jni this makes the one warning that scripts/test_java wants to see: where it sees none, it would see no other either. */
  @Test
  void aMistakeIsSeen() {
    assertEquals("meant", assertThrows(IllegalStateException.class, InC::misuse).getMessage());
  }
}

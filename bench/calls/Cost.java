import evener.Runtime;
import evener.RuntimeOptions;
import evener.Session;
import evener.Tensor;
import java.nio.file.Path;

/** As cost.c, in Java: Cost MODEL COUNT. */
public class Cost {
  public static void main(String[] arguments) {
    int count = Integer.parseInt(arguments[1]);
    try (Runtime runtime = new Runtime(new RuntimeOptions().threads(1).cacheDirectory(""));
        Session session = new Session(runtime, runtime.load(Path.of(arguments[0])));
        Tensor x = runtime.device("cpu").zeros(evener.DType.FLOAT32, 1);
        Tensor y = runtime.device("cpu").zeros(evener.DType.FLOAT32, 1)) {
      Tensor[] inputs = {x};
      Tensor[] outputs = {y};
      runs(session, inputs, outputs, count / 5);
      long begin = System.nanoTime();
      runs(session, inputs, outputs, count);
      System.out.printf("%.1f%n", (double) (System.nanoTime() - begin) / count);
    }
  }

  private static void runs(Session session, Tensor[] inputs, Tensor[] outputs, int count) {
    for (int i = 0; i < count; i++) session.runInto(null, inputs, outputs);
  }
}

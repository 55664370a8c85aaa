package evener;

import java.util.Arrays;

/** Prints what a run of one node into a given output costs, in C and in Java, in turns. It judges nothing. */
final class Bench {
  private static final int RUNS = 20000;
  private static final int ROUNDS = 41;

  private Bench() {}

  public static void main(String[] arguments) {
    try (Runtime runtime = new Runtime(Tiny.options().threads(1));
        Session session = Tiny.session(runtime, Tiny.twice());
        Tensor x = Tiny.floats(runtime, 1);
        Tensor y = Tiny.floats(runtime, 0)) {
      Tensor[] inputs = {x};
      Tensor[] outputs = {y};
      byte[] library = System.getenv("EVENER_LIBRARY").getBytes();
      double[] inC = new double[ROUNDS];
      double[] inJava = new double[ROUNDS];
      double[] infos = new double[ROUNDS];
      for (int round = -10; round < ROUNDS; round++) { // the machine compiles what is called often during the first ones
        long c = InC.runs(library, session.handle(), x.handle(), y.handle(), RUNS);
        if (c < 0) throw new AssertionError("C cannot run it");
        long begin = System.nanoTime();
        for (int i = 0; i < RUNS; i++) session.runInto(null, inputs, outputs);
        long java = System.nanoTime() - begin;
        begin = System.nanoTime();
        for (int i = 0; i < RUNS; i++) x.info();
        long info = System.nanoTime() - begin;
        if (round < 0) continue;
        inC[round] = (double) c / RUNS;
        inJava[round] = (double) java / RUNS;
        infos[round] = (double) info / RUNS;
      }
      double[] above = new double[ROUNDS];
      for (int i = 0; i < ROUNDS; i++) above[i] = inJava[i] - inC[i];
      System.out.printf(
          "a run of one node: %.0f ns in C, %.0f ns in Java, %.0f ns above C; Tensor.info: %.0f ns (medians of %d rounds of %d)%n",
          median(inC), median(inJava), median(above), median(infos), ROUNDS, RUNS);
    }
  }

  private static double median(double[] values) {
    double[] sorted = values.clone();
    Arrays.sort(sorted);
    return sorted[sorted.length / 2];
  }
}

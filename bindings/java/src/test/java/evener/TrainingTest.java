package evener;

import static evener.Tiny.contains;
import static evener.Tiny.fails;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.OptionalDouble;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Exchanger;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class TrainingTest {
  private static final int BATCHES = 8;
  private static final int BATCH = 32;
  private static final int HELD = 64;
  private static final int PIXELS = 28 * 28;

  private static ByteBuffer numbers(Path file) throws Exception {
    return ByteBuffer.wrap(Files.readAllBytes(file)).order(ByteOrder.LITTLE_ENDIAN);
  }

  /** Pictures, their classes, and what Python made of them: tests/training/make_digits_run.py wrote them into the folder EVENER_TRAINING. */
  private static final class Digits {
    final Runtime runtime;
    final float[] images = new float[(BATCHES * BATCH + HELD) * PIXELS];
    final long[] labels = new long[BATCHES * BATCH + HELD];
    final double[] expected = new double[BATCHES + 3];

    Digits(Runtime runtime, Path folder) throws Exception {
      this.runtime = runtime;
      numbers(folder.resolve("images.f32")).asFloatBuffer().get(images);
      numbers(folder.resolve("labels.i64")).asLongBuffer().get(labels);
      numbers(folder.resolve("expected.f64")).asDoubleBuffer().get(expected);
    }

    Tensor inputs(int first, int count) {
      return Tensor.of(runtime, Arrays.copyOfRange(images, first * PIXELS, (first + count) * PIXELS), count, 1, 28, 28);
    }

    Tensor classes(int first, int count) {
      return Tensor.of(runtime, Arrays.copyOfRange(labels, first, first + count), count);
    }

    /** Takes steps, whose losses are to be those of Python, to the last bit. */
    void train(Trainer trainer, int first, int last) {
      for (int i = first; i < last; i++) {
        try (Tensor x = inputs(i * BATCH, BATCH);
            Tensor y = classes(i * BATCH, BATCH)) {
          Step step = trainer.step(Map.of("x", x), y);
          assertEquals(expected[i], step.loss());
          assertEquals(i + 1, step.step());
          assertTrue(!step.skipped() && step.gradientNorm() > 0 && step.learningRate() > 0);
        }
      }
    }

    /** Mean cross-entropy and right answers of logits of the pictures that were held back. */
    void asEvaluated(float[] logits, Evaluation found) {
      double loss = 0;
      int correct = 0;
      for (int row = 0; row < HELD; row++) {
        int label = (int) labels[BATCHES * BATCH + row];
        double sum = 0;
        int best = 0;
        for (int i = 0; i < 10; i++) {
          sum += Math.exp(logits[row * 10 + i]);
          if (logits[row * 10 + i] > logits[row * 10 + best]) best = i;
        }
        loss += (Math.log(sum) - logits[row * 10 + label]) / HELD;
        if (best == label) correct++;
      }
      assertEquals(found.loss(), loss, 1e-5);
      assertEquals(found.correct(), correct);
    }
  }

  private static TrainerOptions digitsOptions() {
    return new TrainerOptions()
        .optimizer(Optimizer.ADAMW)
        .learningRate(0.002)
        .weightDecay(0.01)
        .groups(new ParameterGroup(List.of("*.b"), 2, 0))
        .frozen("conv1.b")
        .schedule(Schedule.COSINE)
        .scheduleSteps(16)
        .warmupSteps(2)
        .clip(1, 0)
        .seed(7);
  }

  @Test
  void digitsAreLearnedWithTheNumbersOfPython(@TempDir Path temporary) throws Exception {
    Path folder = Tiny.needed("EVENER_TRAINING", "expected.f64").getParent();
    Path network = folder.resolve("simple_cnn.onnx");
    Path checkpoint = temporary.resolve("digits.safetensors");
    Path exported = temporary.resolve("digits.onnx");
    try (Runtime runtime = Tiny.runtime();
        Trainer trainer = Trainer.open(runtime, network, digitsOptions())) {
      Digits digits = new Digits(runtime, folder);
      digits.train(trainer, 0, BATCHES / 2);
      trainer.save(checkpoint);
      digits.train(trainer, BATCHES / 2, BATCHES);
      assertTrue(digits.expected[BATCHES - 1] < digits.expected[0]);
      Tensor held = digits.inputs(BATCHES * BATCH, HELD);
      Evaluation found = trainer.evaluate(Map.of("x", held), digits.classes(BATCHES * BATCH, HELD));
      assertEquals(new Evaluation(digits.expected[BATCHES], (long) digits.expected[BATCHES + 1], HELD), found);
      assertTrue(found.accuracy().getAsDouble() > 0.5);
      assertEquals(OptionalDouble.empty(), new Evaluation(1, 0, 0).accuracy());

      // From its own checkpoint and from Python's it goes on with the same bits.
      Map<String, Tensor> learned = trainer.parameters();
      for (Path file : List.of(checkpoint, folder.resolve("state.safetensors"))) {
        try (Trainer other = Trainer.open(runtime, network, digitsOptions())) {
          other.restore(file);
          digits.train(other, BATCHES / 2, BATCHES);
          other.parameters().forEach((name, value) -> assertArrayEquals(learned.get(name).toFloats(), value.toFloats()));
        }
      }

      trainer.export(exported);
      for (Model model : List.of(trainer.finish(), runtime.load(exported))) {
        try (model;
            Session session = new Session(runtime, model)) {
          digits.asEvaluated(session.run(held)[0].toFloats(), found);
        }
      }
    }
  }

  /** Gives logits of three classes: y = x w + b, of any rows of four columns. */
  private static byte[] linear() {
    ByteBuffer weights = ByteBuffer.allocate(48).order(ByteOrder.LITTLE_ENDIAN);
    for (int i = 0; i < 12; i++) weights.putFloat(i % 5 / 4f - 0.5f);
    int dtype = DType.FLOAT32.value();
    return Tiny.model(
        List.of(Tiny.node("MatMul", List.of("x", "w"), List.of("p")), Tiny.node("Add", List.of("p", "b"), List.of("y"))),
        List.of(Tiny.value("x", Tiny.tensorType(DType.FLOAT32, "m", "4"))),
        List.of(Tiny.value("y", Tiny.tensorType(DType.FLOAT32, "m", "3"))),
        List.of(
            Tiny.message().number(1, 4).number(1, 3).number(2, dtype).text(8, "w").bytes(9, weights.array()),
            Tiny.message().number(1, 3).number(2, dtype).text(8, "b").bytes(9, new byte[12])));
  }

  private static Trainer trainer(Runtime runtime, TrainerOptions options) {
    return Trainer.open(runtime, null, options.data(linear(), null));
  }

  private static Map<String, Tensor> inputs(Runtime runtime) {
    float[] data = new float[24];
    for (int i = 0; i < 24; i++) data[i] = i * 5 % 7 / 3f - 1;
    return Map.of("x", Tensor.of(runtime, data, 6, 4));
  }

  private static Tensor labels(Runtime runtime, long... classes) {
    return Tensor.of(runtime, classes, classes.length);
  }

  private static double[] losses(Runtime runtime, Trainer trainer, int steps) {
    Map<String, Tensor> x = inputs(runtime);
    Tensor y = labels(runtime, 0, 1, 2, 2, 1, 0);
    double[] made = new double[steps];
    for (int i = 0; i < steps; i++) made[i] = trainer.step(x, y).loss();
    return made;
  }

  private static void refused(Status status, String text, Trainer trainer, Map<String, Tensor> inputs, Tensor labels) {
    fails(status, text, () -> trainer.step(inputs, labels));
    fails(status, text, () -> trainer.evaluate(inputs, labels));
  }

  @Test
  void misuseIsAnErrorAndChangesNothing(@TempDir Path folder) throws Exception {
    Path broken = folder.resolve("broken.safetensors");
    Files.writeString(broken, "nothing");
    try (Runtime runtime = Tiny.runtime();
        Trainer trainer = trainer(runtime, new TrainerOptions());
        Trainer same = trainer(runtime, new TrainerOptions())) {
      Map<String, Tensor> x = inputs(runtime);
      Tensor y = labels(runtime, 0, 1, 2, 2, 1, 0);
      Tensor closed = labels(runtime, 0);
      closed.close();
      refused(Status.INVALID_ARGUMENT, "3", trainer, x, labels(runtime, 0, 1, 2, 3, 1, 0));
      refused(Status.INVALID_ARGUMENT, "-1", trainer, x, labels(runtime, 0, 1, 2, -1, 1, 0));
      refused(Status.INVALID_ARGUMENT, "batch", trainer, x, labels(runtime, 0, 1, 2));
      refused(Status.INVALID_ARGUMENT, "dtype", trainer, x, Tensor.of(runtime, new int[6], 6));
      refused(Status.INVALID_ARGUMENT, "labels", trainer, x, null);
      refused(Status.INVALID_HANDLE, "closed", trainer, x, closed);
      refused(Status.INVALID_HANDLE, "closed", trainer, Map.of("x", closed), y);
      refused(Status.INVALID_ARGUMENT, "z", trainer, Map.of("z", x.get("x")), y);
      refused(Status.INVALID_ARGUMENT, "", trainer, Map.of("x", Tensor.of(runtime, new float[18], 6, 3)), y);
      refused(Status.INVALID_ARGUMENT, "", trainer, Map.of("x", Tensor.of(runtime, new double[24], 6, 4)), y);
      assertThrows(EvenerException.class, () -> trainer.step(Map.of(), y));
      assertThrows(NullPointerException.class, () -> trainer.step(null, y));
      fails(Status.INVALID_ARGUMENT, "", () -> trainer.setLearningRate(Double.NaN));
      fails(Status.IO, "", () -> trainer.save(Path.of("/nowhere/at/all")));
      fails(Status.IO, "", () -> trainer.restore(Path.of("/nowhere/at/all")));
      fails(Status.IO, "", () -> trainer.export(Path.of("/nowhere/at/all")));
      assertThrows(EvenerException.class, () -> trainer.restore(broken));
      assertArrayEquals(losses(runtime, same, 3), losses(runtime, trainer, 3));
      trainer.close();
      trainer.close();
      refused(Status.INVALID_HANDLE, "the trainer is closed", trainer, x, y);
      fails(Status.INVALID_HANDLE, "closed", trainer::finish);
      fails(Status.INVALID_HANDLE, "closed", trainer::parameters);
      fails(Status.INVALID_HANDLE, "closed", () -> trainer.save(broken));
      fails(Status.INVALID_HANDLE, "closed", () -> trainer.describe(Format.TEXT));
      fails(Status.IO, "none.onnx", () -> Trainer.open(runtime, folder.resolve("none.onnx"), null));
    }
  }

  @Test
  void eachChoiceReachesTheLibrary() {
    try (Runtime runtime = Tiny.runtime()) {
      for (TrainerOptions options :
          List.of(
              new TrainerOptions().nesterov(),
              new TrainerOptions().output("none"),
              new TrainerOptions().output("a\0b"),
              new TrainerOptions().trainable("none"),
              new TrainerOptions().groups(new ParameterGroup(List.of("w"), -1, 0)),
              new TrainerOptions().schedule(Schedule.STEP),
              new TrainerOptions().prune(2, 0, 0),
              new TrainerOptions().accumulate(-1),
              new TrainerOptions().warmupSteps(-1),
              new TrainerOptions().betas(1, TrainerOptions.DEFAULT),
              new TrainerOptions().ranks(new Ranks(0, 1).timeout(Duration.ofMillis(-1))),
              new TrainerOptions().ranks(new Ranks(0, 1).timeout(Duration.ofDays(50))),
              new TrainerOptions().ranks(new Ranks(0, 1).timeout(Duration.ofSeconds(Long.MAX_VALUE))),
              new TrainerOptions().loss(Loss.LATER),
              new TrainerOptions().data(linear(), null).clip(0, -1))) {
        fails(Status.INVALID_ARGUMENT, "", () -> trainer(runtime, options));
      }
      for (TrainerOptions options :
          List.of(new TrainerOptions().device("nowhere"), new TrainerOptions().replicas("nowhere", "cpu"), new TrainerOptions().ranks(new Ranks(0, 2).collective("nothing", null)))) {
        assertThrows(EvenerException.class, () -> trainer(runtime, options));
      }
      Map<String, Tensor> x = inputs(runtime);
      Tensor y = labels(runtime, 0, 1, 2, 2, 1, 0);
      for (Loss loss : List.of(Loss.SOFTMAX_CROSS_ENTROPY, Loss.BCE_WITH_LOGITS, Loss.MSE, Loss.L1)) {
        try (Trainer trainer = trainer(runtime, new TrainerOptions().loss(loss))) {
          Tensor of = loss == Loss.SOFTMAX_CROSS_ENTROPY ? y : Tensor.of(runtime, new float[18], 6, 3);
          double first = trainer.step(x, of).loss();
          assertTrue(trainer.step(x, of).loss() < first, loss.name());
        }
      }
      for (Optimizer optimizer : List.of(Optimizer.SGD, Optimizer.ADAM, Optimizer.ADAMW, Optimizer.ADAGRAD, Optimizer.RMSPROP)) {
        try (Trainer trainer = trainer(runtime, new TrainerOptions().optimizer(optimizer))) {
          double[] all = losses(runtime, trainer, 5);
          assertTrue(all[4] < all[0], optimizer.name());
          contains(trainer.describe(Format.JSON), '"' + optimizer.name().toLowerCase() + '"');
        }
      }
      TrainerOptions options =
          new TrainerOptions().schedule(Schedule.PLATEAU).plateau(TrainerOptions.DEFAULT, 3).scheduleRates(0.5, 0).trainable("*").frozen("b").precision(Precision.BF16);
      try (Trainer trainer = trainer(runtime, options)) {
        assertEquals(1, trainer.inputCount());
        assertEquals(0, trainer.findInput("x"));
        trainer.setLearningRate(0.5);
        float[] before = trainer.parameters().get("w").toFloats();
        assertEquals(List.of("w"), List.copyOf(trainer.parameters().keySet()));
        assertArrayEquals(new float[12], trainer.gradients().get("w").toFloats());
        assertEquals(0.5, trainer.step(x, y).learningRate());
        float[] after = trainer.parameters().get("w").toFloats();
        float[] gradient = trainer.gradients().get("w").toFloats();
        for (int i = 0; i < 12; i++) assertEquals(before[i] - 0.5 * gradient[i], after[i], 1e-6);
        for (int i = 0; i < 5; i++) trainer.noteMetric(1);
        assertEquals(0.25, trainer.step(x, y).learningRate(), 1e-12);
      }
    }
  }

  @Test
  void zeroIsAValue() {
    try (Runtime runtime = Tiny.runtime()) {
      float[] byDefault = after(runtime, new TrainerOptions());
      for (TrainerOptions same :
          List.of(
              new TrainerOptions().learningRate(0.001).weightDecay(0.01).betas(0.9, TrainerOptions.DEFAULT),
              new TrainerOptions().groups(new ParameterGroup(List.of("*"), TrainerOptions.DEFAULT, TrainerOptions.DEFAULT)))) {
        assertArrayEquals(byDefault, after(runtime, same));
      }
      for (TrainerOptions other :
          List.of(
              new TrainerOptions().learningRate(0),
              new TrainerOptions().weightDecay(0),
              new TrainerOptions().betas(0, TrainerOptions.DEFAULT),
              new TrainerOptions().groups(new ParameterGroup(List.of("*"), TrainerOptions.DEFAULT, 0)))) {
        assertTrue(!Arrays.equals(byDefault, after(runtime, other)));
      }
      TrainerOptions plateau = new TrainerOptions().learningRate(1).schedule(Schedule.PLATEAU).plateau(TrainerOptions.DEFAULT, 0);
      try (Trainer trainer = trainer(runtime, plateau)) {
        trainer.noteMetric(1);
        trainer.noteMetric(1);
        assertEquals(0.1, trainer.step(inputs(runtime), labels(runtime, 0, 1, 2, 2, 1, 0)).learningRate(), 1e-12);
      }
    }
  }

  private static float[] after(Runtime runtime, TrainerOptions options) {
    try (Trainer trainer = trainer(runtime, options.optimizer(Optimizer.ADAMW))) {
      losses(runtime, trainer, 3);
      return trainer.parameters().get("w").toFloats();
    }
  }

  @Test
  void aTokenEndsATrainer() {
    try (Runtime runtime = Tiny.runtime();
        CancelToken token = new CancelToken();
        Trainer trainer = trainer(runtime, new TrainerOptions().cancel(token))) {
      losses(runtime, trainer, 1);
      token.cancel();
      token.close();
      refused(Status.CANCELLED, "", trainer, inputs(runtime), labels(runtime, 0, 1, 2, 2, 1, 0));
      assertEquals(2, trainer.parameters().size());
      fails(Status.INVALID_HANDLE, "closed", () -> trainer(runtime, new TrainerOptions().cancel(token)));
    }
  }

  @Test
  void aTrainerIsClosedWhileOthersUseIt() throws Exception {
    try (Runtime runtime = Tiny.runtime()) {
      Trainer trainer = trainer(runtime, new TrainerOptions());
      Map<String, Tensor> x = inputs(runtime);
      Tensor y = labels(runtime, 0, 1, 2, 2, 1, 0);
      CountDownLatch begun = new CountDownLatch(1);
      AtomicReference<Throwable> wrong = new AtomicReference<>();
      List<Thread> threads = new ArrayList<>();
      for (int i = 0; i < 3; i++) {
        Thread thread =
            new Thread(
                () -> {
                  try {
                    for (int k = 0; k < 1000; k++) {
                      trainer.step(x, y);
                      begun.countDown();
                    }
                  } catch (EvenerException failure) {
                    if (failure.status() != Status.INVALID_HANDLE) wrong.set(failure);
                  } catch (Throwable thrown) {
                    wrong.set(thrown);
                  }
                });
        thread.start();
        threads.add(thread);
      }
      begun.await();
      trainer.close();
      for (Thread thread : threads) thread.join();
      assertEquals(null, wrong.get());
    }
  }

  private static Ranks.Reduce sums(Runnable first) {
    return new Ranks.Reduce() {
      @Override
      public void sum(float[] numbers) {
        first.run();
        for (int i = 0; i < numbers.length; i++) numbers[i] *= 2;
      }

      @Override
      public void sum(double[] numbers) {
        first.run();
        for (int i = 0; i < numbers.length; i++) numbers[i] *= 3;
      }
    };
  }

  @Test
  void theSumOverRanksOfTheHost() {
    Scratch scratch = Scratch.get();
    long mark = scratch.mark();
    long error = scratch.error();
    long at = scratch.allocate(16);
    Native.writeDoubles(at, new double[] {1, 2.5}, 2);
    Trainer.Watch watch = new Trainer.Watch(sums(() -> {}));
    assertEquals(Numbers.EVN_OK, Callbacks.reduce(watch, at, 2, Numbers.EVN_DTYPE_FLOAT64, error));
    assertEquals(7.5, scratch.getDouble(at + 8));
    Native.writeFloats(at, new float[] {1, 2, 3, 4}, 4);
    assertEquals(Numbers.EVN_OK, Callbacks.reduce(watch, at, 3, Numbers.EVN_DTYPE_FLOAT32, error));
    float[] floats = new float[4];
    Native.readFloats(at, floats, 4);
    assertArrayEquals(new float[] {2, 4, 6, 4}, floats);
    assertEquals(Numbers.EVN_ERROR_INVALID_ARGUMENT, Callbacks.reduce(watch, at, 2, Numbers.EVN_DTYPE_INT8, error));
    assertEquals(Numbers.EVN_ERROR_INTERNAL, Callbacks.reduce(watch, at, 1L << 40, Numbers.EVN_DTYPE_FLOAT32, error));
    EvenerException gone = new EvenerException(Status.TIMEOUT, "rank 1 is gone");
    Trainer.Watch alone =
        new Trainer.Watch(
            sums(
                () -> {
                  throw gone;
                }));
    assertEquals(Numbers.EVN_ERROR_TIMEOUT, Callbacks.reduce(alone, at, 2, Numbers.EVN_DTYPE_FLOAT64, error));
    assertSame(gone, alone.thrown);
    assertEquals("rank 1 is gone", scratch.chars(error + Layout.Error.MESSAGE, Layout.Error.MESSAGE_BYTES));
    scratch.release(mark);
  }

  /** All-reduce among two threads. */
  private static final class Meeting implements Ranks.Reduce {
    private final Exchanger<double[]> exchanger = new Exchanger<>();

    private double[] other(double[] mine) {
      try {
        return exchanger.exchange(mine, 60, TimeUnit.SECONDS);
      } catch (InterruptedException | TimeoutException alone) {
        throw new IllegalStateException(alone);
      }
    }

    @Override
    public void sum(float[] numbers) {
      double[] mine = new double[numbers.length];
      for (int i = 0; i < numbers.length; i++) mine[i] = numbers[i];
      double[] other = other(mine);
      for (int i = 0; i < numbers.length; i++) numbers[i] += (float) other[i];
    }

    @Override
    public void sum(double[] numbers) {
      double[] other = other(numbers.clone());
      for (int i = 0; i < numbers.length; i++) numbers[i] += other[i];
    }
  }

  private record Learned(List<Double> losses, List<Float> weights) {}

  private static Learned learn(Runtime runtime, Meeting meeting, int rank) {
    try (Trainer trainer = trainer(runtime, new TrainerOptions().ranks(new Ranks(rank, 2).check().reduce(meeting)))) {
      Tensor x = inputs(runtime).get("x").part(rank * 12, 3, 4);
      Tensor y = labels(runtime, 0, 1, 2, 2, 1, 0).part(rank * 3, 3);
      Learned made = new Learned(new ArrayList<>(), new ArrayList<>());
      for (int i = 0; i < 4; i++) made.losses.add(trainer.step(Map.of("x", x), y).loss());
      for (float weight : trainer.parameters().get("w").toFloats()) made.weights.add(weight);
      return made;
    }
  }

  @Test
  void ranksSumByTheHostAndAreAsOne() throws Exception {
    Meeting meeting = new Meeting();
    try (Runtime runtime = Tiny.runtime();
        Trainer alone = trainer(runtime, new TrainerOptions())) {
      CompletableFuture<Learned> second = CompletableFuture.supplyAsync(() -> learn(runtime, meeting, 1), command -> new Thread(command).start());
      Learned first = learn(runtime, meeting, 0);
      assertEquals(first, second.get(600, TimeUnit.SECONDS));
      assertEquals(12, first.weights.size());
      double[] expected = losses(runtime, alone, 4);
      for (int i = 0; i < 4; i++) assertEquals(expected[i], first.losses.get(i), 1e-5);
    }
  }

  @Test
  void whatTheHostsSumThrowsIsTheStatusAndTheCause() {
    EvenerException gone = new EvenerException(Status.TIMEOUT, "rank 1 is gone");
    IllegalStateException wrong = new IllegalStateException("no network");
    try (Runtime runtime = Tiny.runtime()) {
      Ranks ranks = new Ranks(0, 2);
      Ranks.Reduce lost =
          sums(
              () -> {
                throw gone;
              });
      assertSame(gone, fails(Status.TIMEOUT, "rank 1 is gone", () -> trainer(runtime, new TrainerOptions().ranks(ranks.reduce(lost)))).getCause());
      Ranks.Reduce broken =
          sums(
              () -> {
                throw wrong;
              });
      assertSame(wrong, fails(Status.INTERNAL, "no network", () -> trainer(runtime, new TrainerOptions().ranks(ranks.reduce(broken)))).getCause());
    }
  }
}

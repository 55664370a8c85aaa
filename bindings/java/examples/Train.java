import evener.Evaluation;
import evener.Model;
import evener.Optimizer;
import evener.Runtime;
import evener.Session;
import evener.Tensor;
import evener.Trainer;
import evener.TrainerOptions;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Map;

/**
 * Trains a network on written digits, and runs what it has become.
 *
 * <p>usage: java -cp evener.jar Train.java FOLDER TRAINED.onnx (FOLDER: what tests/training/make_digits_run.py has written, a network and pictures of 28 x 28
 * with their classes, as plain numbers)
 */
public final class Train {
  private static final int BATCH = 32;
  private static final int PIXELS = 28 * 28;

  private static ByteBuffer read(Path file) throws Exception {
    return ByteBuffer.wrap(Files.readAllBytes(file)).order(ByteOrder.LITTLE_ENDIAN);
  }

  public static void main(String[] arguments) throws Exception {
    if (arguments.length != 2) {
      System.err.println("usage: Train FOLDER TRAINED.onnx");
      System.exit(2);
    }
    Path folder = Path.of(arguments[0]);
    Path trained = Path.of(arguments[1]);
    ByteBuffer pixels = read(folder.resolve("images.f32"));
    float[] images = new float[pixels.capacity() / 4];
    pixels.asFloatBuffer().get(images);
    long[] labels = new long[images.length / PIXELS];
    read(folder.resolve("labels.i64")).asLongBuffer().get(labels);
    int held = labels.length - BATCH; // the last pictures are not learned

    TrainerOptions options = new TrainerOptions().optimizer(Optimizer.ADAMW).learningRate(0.002);
    try (Runtime runtime = new Runtime();
        Trainer trainer = Trainer.open(runtime, folder.resolve("simple_cnn.onnx"), options)) {
      for (int epoch = 1; epoch <= 4; epoch++) {
        double loss = 0;
        for (int first = 0; first + BATCH <= held; first += BATCH) {
          try (Tensor x = inputs(runtime, images, first);
              Tensor classes = Tensor.of(runtime, Arrays.copyOfRange(labels, first, first + BATCH), BATCH)) {
            loss = trainer.step(Map.of("x", x), classes).loss();
          }
        }
        try (Tensor x = inputs(runtime, images, held);
            Tensor classes = Tensor.of(runtime, Arrays.copyOfRange(labels, held, held + BATCH), BATCH)) {
          Evaluation found = trainer.evaluate(Map.of("x", x), classes);
          System.out.printf("epoch %d: loss %.4f, %d of %d read rightly%n", epoch, loss, found.correct(), found.count());
        }
      }

      trainer.export(trained); // an ONNX file, for any engine
      try (Model model = runtime.load(trained);
          Session session = new Session(runtime, model);
          Tensor x = inputs(runtime, images, held);
          Tensor output = session.run(x)[0]) {
        float[] scores = output.toFloats();
        int best = 0;
        for (int i = 0; i < 10; i++) if (scores[i] > scores[best]) best = i;
        System.out.println("the first of them is a " + labels[held] + ": it was read as " + best);
      }
    }
  }

  private static Tensor inputs(Runtime runtime, float[] images, int first) {
    return Tensor.of(runtime, Arrays.copyOfRange(images, first * PIXELS, (first + BATCH) * PIXELS), BATCH, 1, 28, 28);
  }
}

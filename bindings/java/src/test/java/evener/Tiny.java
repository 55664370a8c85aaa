package evener;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assertions.fail;

import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.function.Executable;

/** Models of a few nodes, and what the tests share. */
final class Tiny {
  private Tiny() {}

  /** Bytes of Protocol Buffers, as far as ONNX needs them. */
  static final class Message {
    private final ByteArrayOutputStream bytes = new ByteArrayOutputStream();

    private void varint(long value) {
      for (; (value & ~0x7fL) != 0; value >>>= 7) bytes.write((int) (value & 0x7f | 0x80));
      bytes.write((int) value);
    }

    Message number(int field, long value) {
      varint((long) field << 3);
      varint(value);
      return this;
    }

    Message bytes(int field, byte[] value) {
      varint((long) field << 3 | 2);
      varint(value.length);
      bytes.writeBytes(value);
      return this;
    }

    Message single(int field, float value) {
      varint((long) field << 3 | 5);
      bytes.writeBytes(ByteBuffer.allocate(4).order(ByteOrder.LITTLE_ENDIAN).putFloat(value).array());
      return this;
    }

    Message text(int field, String value) {
      return bytes(field, value.getBytes(StandardCharsets.UTF_8));
    }

    Message all(int field, List<Message> values) {
      for (Message value : values) bytes(field, value.made());
      return this;
    }

    Message with(int field, Message value) {
      return bytes(field, value.made());
    }

    byte[] made() {
      return bytes.toByteArray();
    }
  }

  static Message message() {
    return new Message();
  }

  static Message tensorType(DType dtype, String... dims) {
    Message shape = message();
    for (String dim : dims) shape.with(1, dim.matches("\\d+") ? message().number(1, Long.parseLong(dim)) : message().text(2, dim));
    return message().with(1, message().number(1, dtype.value()).with(2, shape));
  }

  static Message value(String name, Message type) {
    return message().text(1, name).with(2, type);
  }

  static Message vector(String name) {
    return value(name, tensorType(DType.FLOAT32, "n"));
  }

  static Message node(String op, List<String> inputs, List<String> outputs) {
    Message made = message();
    for (String input : inputs) made.text(1, input);
    for (String output : outputs) made.text(2, output);
    return made.text(3, "the_" + op).text(4, op);
  }

  static byte[] model(List<Message> nodes, List<Message> inputs, List<Message> outputs, List<Message> constants) {
    Message graph = message().all(1, nodes).text(2, "tiny").all(5, constants).all(11, inputs).all(12, outputs);
    Message metadata = message().text(1, "author").text(2, "ünï");
    return message()
        .number(1, 8)
        .with(7, graph)
        .with(8, message().text(1, "").number(2, 17))
        .with(8, message().text(1, "mine").number(2, 1))
        .with(14, metadata)
        .made();
  }

  /** Gives y = x + x, of any length. */
  static byte[] twice() {
    return model(List.of(node("Add", List.of("x", "x"), List.of("y"))), List.of(vector("x")), List.of(vector("y")), List.of());
  }

  /** Gives y = x w, with x of any number of rows of 64: a model that can be quantized. */
  static byte[] product() {
    ByteBuffer weights = ByteBuffer.allocate(64 * 64 * 4).order(ByteOrder.LITTLE_ENDIAN);
    for (int i = 0; i < 64 * 64; i++) weights.putFloat((i * 37 % 101 - 50) / 50f);
    Message constant = message().number(1, 64).number(1, 64).number(2, DType.FLOAT32.value()).text(8, "w").bytes(9, weights.array());
    Message rows = tensorType(DType.FLOAT32, "m", "64");
    return model(
        List.of(node("MatMul", List.of("x", "w"), List.of("y"))), List.of(value("x", rows)), List.of(value("y", rows)), List.of(constant));
  }

  /** Gives product() with w in another file, of which doubling() is the content: y = 2 x. */
  static byte[] externalProduct(String location) {
    Message entry = message().text(1, "location").text(2, location);
    Message constant =
        message().number(1, 64).number(1, 64).number(2, DType.FLOAT32.value()).text(8, "w").with(13, entry).number(14, 1);
    Message rows = tensorType(DType.FLOAT32, "m", "64");
    return model(
        List.of(node("MatMul", List.of("x", "w"), List.of("y"))),
        List.of(value("x", rows)),
        List.of(value("y", rows)),
        List.of(constant));
  }

  static byte[] doubling() {
    ByteBuffer weights = ByteBuffer.allocate(64 * 64 * 4).order(ByteOrder.LITTLE_ENDIAN);
    for (int i = 0; i < 64; i++) weights.putFloat(i * 65 * 4, 2);
    return weights.array();
  }

  /** Gives y = x k + b, where k is 2 and b is 1 unless they are given. */
  static byte[] scale() {
    Message scalar = tensorType(DType.FLOAT32);
    return model(
        List.of(node("Mul", List.of("x", "k"), List.of("m")), node("Add", List.of("m", "b"), List.of("y"))),
        List.of(vector("x"), value("k", scalar), value("b", scalar)),
        List.of(vector("y")),
        List.of(scalar("k", 2), scalar("b", 1)));
  }

  private static Message scalar(String name, float value) {
    byte[] bytes = ByteBuffer.allocate(4).order(ByteOrder.LITTLE_ENDIAN).putFloat(value).array();
    return message().number(2, DType.FLOAT32.value()).text(8, name).bytes(9, bytes);
  }

  /** Gives total = sum + x and y = -total: a state of two numbers. */
  static byte[] runningSum() {
    Message type = tensorType(DType.FLOAT32, "2");
    return model(
        List.of(node("Add", List.of("x", "sum"), List.of("total")), node("Neg", List.of("total"), List.of("y"))),
        List.of(value("x", type), value("sum", type)),
        List.of(value("total", type), value("y", type)),
        List.of());
  }

  /** Gives y = op(x), of the domain "mine", with attributes. */
  static byte[] custom(String op, Message... attributes) {
    Message made = node(op, List.of("x"), List.of("y")).all(5, List.of(attributes)).text(7, "mine");
    return model(List.of(made), List.of(vector("x")), List.of(vector("y")), List.of());
  }

  static Runtime runtime() {
    return new Runtime(options());
  }

  static RuntimeOptions options() {
    return new RuntimeOptions().threads(2).cacheDirectory("");
  }

  static Session session(Runtime runtime, byte[] bytes) {
    try (Model model = runtime.load(bytes)) {
      return new Session(runtime, model);
    }
  }

  static Tensor floats(Runtime runtime, float... values) {
    return Tensor.of(runtime, values, values.length);
  }

  static void holds(Tensor tensor, float... values) {
    assertArrayEquals(values, tensor.toFloats());
  }

  /** Fails unless the call ends with the status, and with the text in its message. */
  static EvenerException fails(Status status, String text, Executable call) {
    EvenerException failure = assertThrows(EvenerException.class, call);
    assertEquals(status, failure.status(), failure.getMessage());
    contains(failure.getMessage(), text);
    return failure;
  }

  static void contains(String text, String part) {
    assertTrue(text.contains(part), () -> "no " + part + " in " + text);
  }

  /** Gives a file of the folder that an environment variable names, or skips the test. */
  static Path needed(String variable, String name) {
    String folder = System.getenv(variable);
    if (folder != null && Files.exists(Path.of(folder, name))) return Path.of(folder, name);
    if (System.getenv("EVENER_REQUIRE") != null) fail("EVENER_REQUIRE is set, and " + variable + " names no folder with " + name);
    Assumptions.abort(variable + " names no folder with " + name);
    return null;
  }

  /** An operator that copies, and waits until it is told to go on: with it a test says when runs begin and end. */
  static final class Gate implements Operator {
    final Semaphore began = new Semaphore(0);
    final CountDownLatch open = new CountDownLatch(1);

    Gate(Runtime runtime) {
      runtime.registerOperator(new OperatorDefinition("mine", "Gate"), this);
    }

    @Override
    public TensorSpec[] infer(Node node, TensorView[] inputs, int outputs) {
      return new TensorSpec[] {inputs[0].spec()};
    }

    @Override
    public void run(Node node, TensorView[] inputs, TensorView[] outputs) {
      began.release();
      try {
        open.await();
      } catch (InterruptedException interrupted) {
        throw new IllegalStateException(interrupted);
      }
      outputs[0].set(inputs[0].toFloats());
    }
  }
}

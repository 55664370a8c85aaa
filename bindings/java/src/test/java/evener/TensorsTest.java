package evener;

import static evener.Tiny.fails;
import static evener.Tiny.floats;
import static evener.Tiny.holds;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import org.junit.jupiter.api.Test;

class TensorsTest {
  private static ByteBuffer direct(float... values) {
    ByteBuffer made = ByteBuffer.allocateDirect(4 * values.length).order(ByteOrder.nativeOrder());
    made.asFloatBuffer().put(values);
    return made;
  }

  @Test
  void arraysAreCopiedInAndOut() {
    try (Runtime runtime = Tiny.runtime()) {
      assertArrayEquals(new float[] {1, 2, 3, 4}, Tensor.of(runtime, new float[] {1, 2, 3, 4}, 2, 2).toFloats());
      assertArrayEquals(new double[] {1.5}, Tensor.of(runtime, new double[] {1.5}, 1).toDoubles());
      assertArrayEquals(new long[] {Long.MIN_VALUE}, Tensor.of(runtime, new long[] {Long.MIN_VALUE}, 1).toLongs());
      assertArrayEquals(new int[] {-1, 1}, Tensor.of(runtime, new int[] {-1, 1}, 2).toInts());
      assertArrayEquals(new short[] {-1, 7}, Tensor.of(runtime, DType.BFLOAT16, new short[] {-1, 7}, 2).toShorts());
      assertArrayEquals(new byte[] {-1, 7}, Tensor.of(runtime, DType.UINT8, new byte[] {-1, 7}, 2).toBytes());
      assertArrayEquals(new boolean[] {true, false}, Tensor.of(runtime, new boolean[] {true, false}, 2).toBooleans());
      assertArrayEquals(new float[] {9}, Tensor.of(runtime, new float[] {9}).toFloats());
      assertArrayEquals(new float[0], Tensor.of(runtime, new float[0], 0, 3).toFloats());
      fails(Status.INVALID_ARGUMENT, "FLOAT32", () -> Tensor.of(runtime, DType.FLOAT32, new short[] {1}, 1));
      fails(Status.INVALID_ARGUMENT, "BOOL", () -> Tensor.of(runtime, DType.BOOL, new byte[] {2}, 1));
      fails(Status.INVALID_ARGUMENT, "no shape", () -> Tensor.of(runtime, new float[] {1}, -1));
      fails(Status.INVALID_ARGUMENT, "no shape", () -> Tensor.of(runtime, new float[] {1}, Long.MAX_VALUE, 3));
      fails(Status.LIMIT, "rank", () -> Tensor.of(runtime, new float[] {1}, 1, 1, 1, 1, 1, 1, 1, 1, 1));
    }
  }

  @Test
  void stringsAreBytesOfAnyKind() {
    try (Runtime runtime = Tiny.runtime()) {
      String[] texts = {"a", "", "ünï\0code"};
      Tensor made = Tensor.of(runtime, texts, 3);
      assertArrayEquals(texts, made.toStrings());
      fails(Status.INVALID_ARGUMENT, "", () -> Tensor.of(runtime, new String[] {"a"}, 3));
      assertThrows(NullPointerException.class, () -> Tensor.of(runtime, new String[] {null}, 1));
      fails(Status.UNSUPPORTED, "", made::buffer);
      assertArrayEquals(new String[0], Tensor.of(runtime, new String[0], 0).toStrings());
    }
  }

  @Test
  void infoSaysWhatATensorIs() {
    try (Runtime runtime = Tiny.runtime();
        Tensor tensor = runtime.device("cpu").zeros(DType.INT16, 2, 3)) {
      TensorInfo info = tensor.info();
      assertEquals(DType.INT16, info.dtype());
      assertArrayEquals(new long[] {2, 3}, info.dims());
      assertEquals(12, info.sizeBytes());
      assertEquals("INT16[2, 3] on cpu", info.toString());
      assertTrue(!info.isReadOnly() && !info.isPinned());
      assertTrue(runtime.device("cpu").pinned(DType.UINT8, 5).info().isPinned());
    }
  }

  @Test
  void aDirectBufferIsSharedBothWays() {
    try (Runtime runtime = Tiny.runtime();
        Session session = Tiny.session(runtime, Tiny.twice())) {
      ByteBuffer in = direct(9, 1, 2).position(4);
      ByteBuffer out = direct(0, 0);
      try (Tensor x = Tensor.wrap(runtime, in, DType.FLOAT32, 2);
          Tensor y = Tensor.wrap(runtime, out, DType.FLOAT32, 2)) {
        session.runInto(null, new Tensor[] {x}, new Tensor[] {y});
        assertEquals(2, out.getFloat(0));
        assertEquals(4, out.getFloat(4));
        in.putFloat(4, 5);
        holds(x, 5, 2);
        session.runInto(null, new Tensor[] {x}, new Tensor[] {y});
        assertEquals(10, out.getFloat(0));
      }
      fails(Status.INVALID_ARGUMENT, "", () -> Tensor.wrap(runtime, direct(1, 2), DType.FLOAT32, 3));
      fails(Status.INVALID_ARGUMENT, "not direct", () -> Tensor.wrap(runtime, ByteBuffer.allocate(4), DType.FLOAT32, 1));
      fails(Status.INVALID_ARGUMENT, "read-only", () -> Tensor.wrap(runtime, direct(1).asReadOnlyBuffer(), DType.FLOAT32, 1));
      ByteBuffer swapped = ByteBuffer.allocateDirect(4).order(ByteOrder.BIG_ENDIAN);
      fails(Status.INVALID_ARGUMENT, "BIG_ENDIAN", () -> Tensor.wrap(runtime, swapped, DType.FLOAT32, 1));
      Tensor.wrap(runtime, swapped, DType.UINT8, 4).close();
      Tensor.wrap(runtime, ByteBuffer.allocateDirect(0).order(ByteOrder.nativeOrder()), DType.FLOAT32, 0).close();
    }
  }

  @Test
  void aTensorsMemoryIsABufferThatOutlivesIt() {
    ByteBuffer late;
    ByteBuffer derived;
    try (Runtime runtime = Tiny.runtime();
        Session session = Tiny.session(runtime, Tiny.twice());
        Tensor x = floats(runtime, 1, 2)) {
      ByteBuffer buffer = x.buffer();
      assertEquals(ByteOrder.nativeOrder(), buffer.order());
      assertTrue(buffer.isDirect() && buffer.capacity() == 8);
      buffer.putFloat(0, 7);
      Tensor y = session.run(x)[0];
      holds(y, 14, 4);
      holds(x, 7, 2);
      late = y.buffer();
      derived = y.buffer().slice(4, 4).order(ByteOrder.nativeOrder());
      y.close();
      assertEquals(0, runtime.device("cpu").zeros(DType.FLOAT32, 0).buffer().capacity());
    }
    for (int i = 0; i < 5; i++) {
      System.gc();
      assertEquals(14, late.getFloat(0));
      assertEquals(4, derived.getFloat(0));
    }
  }

  @Test
  void partsThatRunsMakeAreReadOnlyBuffers() {
    Tiny.Message sequence = Tiny.message().with(4, Tiny.message().with(1, Tiny.tensorType(DType.FLOAT32, "n")));
    byte[] model =
        Tiny.model(
            java.util.List.of(Tiny.node("SequenceConstruct", java.util.List.of("x", "x"), java.util.List.of("s"))),
            java.util.List.of(Tiny.vector("x")),
            java.util.List.of(Tiny.value("s", sequence)),
            java.util.List.of());
    try (Runtime runtime = Tiny.runtime();
        Session session = Tiny.session(runtime, model);
        Value x = Value.of(floats(runtime, 3));
        Tensor part = session.runValues(null, x)[0].parts().get(0).tensor()) {
      assertTrue(part.info().isReadOnly());
      ByteBuffer buffer = part.buffer();
      assertTrue(buffer.isReadOnly() && buffer.isDirect());
      assertEquals(ByteOrder.nativeOrder(), buffer.order());
      assertEquals(3, buffer.getFloat(0));
    }
  }

  @Test
  void arraysThatAreTooLargeAreErrors() {
    try (Runtime runtime = new Runtime(Tiny.options().memoryLimit(1 << 20))) {
      EvenerException failure = fails(Status.OUT_OF_MEMORY, "", () -> Tensor.of(runtime, new float[1 << 19], 1 << 19));
      assertEquals(1 << 21, failure.bytesRequested());
      assertTrue(failure.bytesAvailable() < 1 << 21);
      assertEquals("cpu", failure.device());
    }
  }
}

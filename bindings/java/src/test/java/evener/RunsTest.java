package evener;

import static evener.Tiny.contains;
import static evener.Tiny.fails;
import static evener.Tiny.floats;
import static evener.Tiny.holds;
import static evener.Tiny.node;
import static evener.Tiny.value;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.junit.jupiter.api.Test;

class RunsTest {
  @Test
  void aModelRunsByPlaceAndByName() {
    try (Runtime runtime = Tiny.runtime();
        Session session = Tiny.session(runtime, Tiny.twice());
        Tensor x = floats(runtime, 1, -2)) {
      holds(session.run(x)[0], 2, -4);
      holds(session.runNamed(null, Map.of("x", x)).get("y"), 2, -4);
      fails(Status.INVALID_ARGUMENT, "x", () -> session.runNamed(null, Map.of("z", x)));
      fails(Status.INVALID_ARGUMENT, "input 'x' is missing", () -> session.runNamed(null, Map.of()));
      ValueInfo info = session.inputs().get(0);
      assertEquals("x", info.name());
      assertArrayEquals(new long[] {-1}, info.dims());
      assertEquals(List.of("n"), info.symbols());
      assertEquals(DType.FLOAT32, info.dtype());
      assertTrue(info.hasRank());
      assertEquals(0, session.findOutput("y"));
      fails(Status.INVALID_ARGUMENT, "there are: y", () -> session.findOutput("q"));
    }
  }

  @Test
  void anInputWithADefaultIsGivenOrLeftOut() {
    try (Runtime runtime = Tiny.runtime();
        Model model = runtime.load(Tiny.scale());
        Tensor x = floats(runtime, 1, 2);
        Tensor k = Tensor.of(runtime, new float[] {5});
        Tensor b = Tensor.of(runtime, new float[] {3});
        Tensor y = floats(runtime, 0, 0)) {
      fails(Status.INVALID_ARGUMENT, "x", () -> new Session(runtime, model, new SessionOptions().overridable("x"), null));
      assertEquals(List.of("k", "b"), model.defaults().stream().map(ValueInfo::name).toList());
      for (String[] overridable : new String[][] {{}, {"b"}, {"k", "b"}}) {
        try (Session session = new Session(runtime, model, new SessionOptions().overridable(overridable), null)) {
          assertEquals(List.of("x"), session.inputs().stream().map(ValueInfo::name).toList());
          assertEquals(List.of("k", "b"), session.defaults().stream().map(ValueInfo::name).toList());
          for (int i = 0; i < 2; i++) {
            checkScale(session, y, new Tensor[] {x}, Map.of("x", x), 3, 5);
            checkScale(session, y, new Tensor[] {x, k}, Map.of("x", x, "k", k), 6, 11);
            checkScale(session, y, new Tensor[] {x, null, b}, Map.of("x", x, "b", b), 5, 7);
            checkScale(session, y, new Tensor[] {x, k, b}, Map.of("x", x, "k", k, "b", b), 8, 13);
          }
          fails(Status.INVALID_ARGUMENT, "input 'x' is missing", () -> session.runNamed(null, Map.of("k", k)));
        }
      }
    }
  }

  private static void checkScale(Session session, Tensor y, Tensor[] listed, Map<String, Tensor> named, float... wanted) {
    holds(session.run(listed)[0], wanted);
    holds(session.runNamed(null, named).get("y"), wanted);
    session.runInto(null, listed, new Tensor[] {y});
    holds(y, wanted);
  }

  @Test
  void inputsThatDoNotFitAreErrors() {
    try (Runtime runtime = Tiny.runtime();
        Session session = Tiny.session(runtime, Tiny.twice());
        Tensor x = floats(runtime, 1)) {
      fails(Status.INVALID_ARGUMENT, "x", () -> session.run(Tensor.of(runtime, new int[] {1}, 1)));
      fails(Status.INVALID_ARGUMENT, "x", () -> session.run(Tensor.of(runtime, new float[] {1}, 1, 1)));
      fails(Status.INVALID_ARGUMENT, "input", () -> session.run(x, x));
      fails(Status.INVALID_ARGUMENT, "input", () -> session.run());
      fails(Status.INVALID_HANDLE, "", () -> session.run((Tensor) null));
      fails(Status.INVALID_ARGUMENT, "no output 1", () -> session.run(new RunOptions().skip(1), x));
      fails(Status.INVALID_ARGUMENT, "2 elements do not fill dims [3]", () -> Tensor.of(runtime, new float[] {1, 2}, 3));
      fails(Status.INVALID_ARGUMENT, "a tensor of FLOAT32 is no array of int", x::toInts);
      fails(Status.INVALID_ARGUMENT, "a time of PT-1S", () -> new RunOptions().timeout(Duration.ofSeconds(-1)));
      fails(Status.INVALID_ARGUMENT, "priority", () -> session.run(new RunOptions().priority(8), x));
    }
  }

  @Test
  void errorsNameTheNode() {
    try (Runtime runtime = Tiny.runtime()) {
      EvenerException failure = fails(Status.UNSUPPORTED, "[node the_NoSuch]", () -> runtime.load(Tiny.custom("NoSuch")));
      assertEquals("the_NoSuch", failure.node());
      fails(Status.INVALID_MODEL, "", () -> runtime.load("no model".getBytes()));
      fails(Status.INVALID_MODEL, "", () -> runtime.load(new byte[0]));
      fails(Status.IO, "/nowhere.onnx", () -> runtime.load(Path.of("/nowhere.onnx")));
      fails(Status.INVALID_ARGUMENT, "NUL", () -> runtime.device("with\0nul"));
    }
  }

  @Test
  void outputsGoIntoTensorsThatThereAre() {
    try (Runtime runtime = Tiny.runtime();
        Session session = Tiny.session(runtime, Tiny.twice());
        Tensor x = floats(runtime, 1, 2);
        Tensor y = floats(runtime, 0, 0)) {
      Tensor[] outputs = {y};
      session.runInto(null, new Tensor[] {x}, outputs);
      assertSame(y, outputs[0]);
      holds(y, 2, 4);
      holds(y.part(1, 1), 4);
      fails(Status.INVALID_ARGUMENT, "beyond", () -> y.part(1, 2));
      fails(Status.INVALID_ARGUMENT, "y", () -> session.runInto(null, new Tensor[] {x}, new Tensor[] {floats(runtime, 0)}));
      holds(y.copyTo(runtime.device("cpu")), 2, 4);
      x.copyInto(y);
      holds(y, 1, 2);
      assertNull(session.run(new RunOptions().skip(0), x)[0]);
    }
  }

  @Test
  void tokensAndDeadlinesEndRuns() {
    try (Runtime runtime = Tiny.runtime();
        Session session = Tiny.session(runtime, Tiny.twice());
        CancelToken token = new CancelToken();
        Tensor x = floats(runtime, 1)) {
      RunOptions options = new RunOptions().cancel(token).timeout(Duration.ofHours(1)).deadlineAfter(Duration.ofHours(1)).priority(3).seed(7);
      holds(session.run(options, x)[0], 2);
      token.cancel();
      fails(Status.CANCELLED, "", () -> session.run(options, x));
      fails(Status.CANCELLED, "", () -> runtime.load(Tiny.twice(), null, new Deadline().cancel(token)));
      fails(Status.TIMEOUT, "", () -> session.run(new RunOptions().deadline(1), x));
      fails(Status.TIMEOUT, "", () -> runtime.load(Tiny.product(), null, new Deadline().at(1)));
      try (Model model = runtime.load(Tiny.product())) {
        fails(Status.TIMEOUT, "", () -> new Session(runtime, model, null, new Deadline().at(1)));
      }
      token.close();
      fails(Status.INVALID_HANDLE, "the token is closed", () -> session.run(options, x));
      fails(Status.INVALID_HANDLE, "the token is closed", token::cancel);
    }
  }

  @Test
  void modelsSayWhatTheyAre() {
    try (Runtime runtime = Tiny.runtime();
        Model model = runtime.load(Tiny.twice())) {
      contains(model.describe(Format.TEXT), "Add");
      assertEquals(List.of("author"), model.metadataKeys());
      assertEquals(Optional.of("ünï"), model.metadata("author"));
      assertEquals(Optional.empty(), model.metadata("nobody"));
      assertEquals("tensor(float32)", model.inputs().get(0).type());
      assertEquals(List.of("n"), model.outputs().get(0).symbols());
    }
  }

  @Test
  void modelsAreReadFromBuffers() {
    byte[] bytes = Tiny.twice();
    ByteBuffer direct = ByteBuffer.allocateDirect(bytes.length + 3).put(new byte[3]).put(bytes).flip().position(3);
    try (Runtime runtime = Tiny.runtime()) {
      runtime.load(direct).close();
      runtime.load(ByteBuffer.wrap(bytes)).close();
      assertEquals(bytes.length, direct.remaining());
      fails(Status.INVALID_MODEL, "", () -> runtime.load(ByteBuffer.allocateDirect(0)));
    }
  }

  @Test
  void aStateGoesFromRunToRun() {
    try (Runtime runtime = Tiny.runtime();
        Session session = Tiny.session(runtime, Tiny.runningSum());
        State state = new State(session, List.of(new StatePair("total", "sum")), null);
        Tensor x = floats(runtime, 1, 2)) {
      RunOptions options = new RunOptions().state(state);
      Tensor[] outputs = session.run(options, x, null);
      assertNull(outputs[0]);
      holds(outputs[1], -1, -2);
      byte[] saved = state.save();
      try (State fork = state.fork()) {
        holds(session.run(options, x, null)[1], -2, -4);
        holds(session.run(new RunOptions().state(fork), x, null)[1], -2, -4);
      }
      state.reset();
      holds(session.run(options, x, null)[1], -1, -2);
      state.restore(saved);
      holds(session.run(options, x, null)[1], -2, -4);
      assertEquals(0, state.length(0));
      state.truncate(0);
      contains(state.describe(Format.JSON), "\"total\"");
      fails(Status.INVALID_ARGUMENT, "", () -> state.restore("other".getBytes()));
      fails(Status.INVALID_ARGUMENT, "none", () -> new State(session, List.of(new StatePair("none", "sum")), null));
      new State(session, List.of(new StatePair("total", "sum")), new StateOptions().onDemand().dims(Map.of("sum", new long[] {2}))).close();
      fails(Status.INVALID_ARGUMENT, "", () -> new State(session, List.of(new StatePair("total", "sum")), new StateOptions().float16().int8()));
      state.close();
      fails(Status.INVALID_HANDLE, "the state is closed", state::reset);
      fails(Status.INVALID_HANDLE, "the state is closed", () -> session.run(options, x, null));
    }
  }

  @Test
  void valuesAreSequencesAndMore() {
    Tiny.Message sequence = Tiny.message().with(4, Tiny.message().with(1, Tiny.tensorType(DType.FLOAT32, "n")));
    byte[] model =
        Tiny.model(
            List.of(node("SequenceConstruct", List.of("x", "x"), List.of("s"))), List.of(Tiny.vector("x")), List.of(value("s", sequence)), List.of());
    try (Runtime runtime = Tiny.runtime();
        Session session = Tiny.session(runtime, model);
        Tensor tensor = floats(runtime, 3);
        Value x = Value.of(tensor)) {
      for (Value output : List.of(session.runValues(null, x)[0], session.submitValues(null, x).join()[0])) {
        assertEquals("seq(tensor(float32))", output.type());
        holds(output.parts().get(1).tensor(), 3);
        fails(Status.INVALID_ARGUMENT, "", output::tensor);
      }
      try (Value made = Value.of(runtime, "seq(tensor(float32))", x, x)) {
        assertEquals(2, made.parts().size());
      }
      fails(Status.INVALID_ARGUMENT, "nonsense", () -> Value.of(runtime, "nonsense"));
    }
  }

  @Test
  void eventsAndCopies() {
    try (Runtime runtime = Tiny.runtime();
        Device device = runtime.device("cpu");
        Tensor x = floats(runtime, 4);
        Tensor y = floats(runtime, 0);
        Event event = device.recordEvent();
        Event copied = x.copyAsync(y, event)) {
      device.waitEvent(copied);
      copied.await();
      assertTrue(copied.await(Duration.ZERO));
      holds(y, 4);
    }
  }
}

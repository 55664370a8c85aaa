package evener;

import static evener.Tiny.contains;
import static evener.Tiny.fails;
import static evener.Tiny.floats;
import static evener.Tiny.holds;
import static evener.Tiny.message;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Test;

class OperatorsTest {
  /** Attributes of a node, as ONNX writes them: name, value and kind. */
  private static Tiny.Message attribute(String name, int kind) {
    return message().text(1, name).number(20, kind);
  }

  private static TensorSpec[] like(TensorView[] inputs) {
    return new TensorSpec[] {inputs[0].spec()};
  }

  /** What a run does. */
  private interface Body {
    void run(Node node, TensorView[] inputs, TensorView[] outputs);
  }

  private static Operator operator(Body body) {
    return new Operator() {
      @Override
      public TensorSpec[] infer(Node node, TensorView[] inputs, int outputs) {
        assertTrue(node.name().startsWith("the_"));
        assertEquals(1, outputs);
        return like(inputs);
      }

      @Override
      public void run(Node node, TensorView[] inputs, TensorView[] outputs) {
        body.run(node, inputs, outputs);
      }
    };
  }

  private static void register(Runtime runtime, String name, Body body) {
    runtime.registerOperator(new OperatorDefinition("mine", name), operator(body));
  }

  @Test
  void anOperatorOfJavaReadsItsAttributes() {
    try (Runtime runtime = Tiny.runtime()) {
      register(
          runtime,
          "Scale",
          (node, inputs, outputs) -> {
            assertEquals(Optional.of("a text"), node.text("text"));
            assertEquals(Optional.of(List.of("a", "", "ünï")), node.texts("texts"));
            assertEquals(List.of(7L, -8L), List.of(node.integers("ints").orElseThrow()[0], node.integers("ints").orElseThrow()[1]));
            assertEquals(2.5f, node.numbers("floats").orElseThrow()[0]);
            assertEquals(Optional.of(0.5f), node.number("float"));
            TensorView tensor = node.tensor("tensor").orElseThrow();
            assertEquals(41, tensor.toLongs()[0]);
            assertEquals(AttributeType.INTS, node.type("ints"));
            assertEquals(AttributeType.NONE, node.type("absent"));
            assertEquals(Optional.empty(), node.integer("absent"));
            assertTrue(node.integers("absent").isEmpty() && node.tensor("absent").isEmpty() && node.texts("absent").isEmpty());
            fails(Status.INVALID_ARGUMENT, "", () -> node.text("float"));
            fails(Status.INVALID_ARGUMENT, "no array of int", inputs[0]::toInts);
            fails(Status.WRONG_STATE, "inputs must not be written", () -> inputs[0].set(new float[2]));
            fails(Status.INVALID_ARGUMENT, "3 elements do not fill a tensor of 2", () -> outputs[0].set(new float[3]));
            assertEquals(8, inputs[0].toBytes().length);
            float[] x = inputs[0].toFloats();
            for (int i = 0; i < x.length; i++) x[i] *= node.integer("factor").orElse(1L);
            System.gc();
            outputs[0].set(x);
          });
      Tiny.Message tensor = message().number(1, 1).number(2, DType.INT64.value()).bytes(9, new byte[] {41, 0, 0, 0, 0, 0, 0, 0});
      byte[] model =
          Tiny.custom(
              "Scale",
              attribute("factor", 2).number(3, 3),
              attribute("text", 3).text(4, "a text"),
              attribute("texts", 8).text(9, "a").text(9, "").text(9, "ünï"),
              attribute("ints", 7).number(8, 7).number(8, -8),
              attribute("floats", 6).single(7, 2.5f),
              attribute("float", 1).single(2, 0.5f),
              attribute("tensor", 4).with(5, tensor));
      try (Session session = Tiny.session(runtime, model)) {
        holds(session.run(floats(runtime, 1, 2))[0], 3, 6);
        holds(session.submit(null, floats(runtime, 1, 2)).join()[0], 3, 6);
        contains(session.explain(Format.JSON), "the_Scale");
      }
    }
  }

  @Test
  void whatAnOperatorThrowsIsTheRunsError() {
    try (Runtime runtime = Tiny.runtime();
        Tensor x = floats(runtime, 1)) {
      for (String odd : List.of("", "-")) { // of two bytes a character: one of both texts is cut within one
        register(
            runtime,
            "Throw" + odd,
            (node, inputs, outputs) -> {
              throw new IllegalStateException("not today: " + odd + "ü".repeat(1000));
            });
        EvenerException failure = fails(Status.INTERNAL, "not today", () -> Tiny.session(runtime, Tiny.custom("Throw" + odd)).run(x));
        assertEquals("the_Throw" + odd, failure.node());
        contains(failure.detail(), "IllegalStateException");
        assertTrue(failure.detail().matches(".*ü"), failure.detail());
      }
      assertEquals("the_Throw", RequestsTest.failureOf(Tiny.session(runtime, Tiny.custom("Throw")).submit(null, x)).node());
      register(
          runtime,
          "Refuse",
          (node, inputs, outputs) -> {
            throw new EvenerException(Status.UNSUPPORTED, "an unsupported day");
          });
      fails(Status.UNSUPPORTED, "an unsupported day", () -> Tiny.session(runtime, Tiny.custom("Refuse")).run(x));
      register(runtime, "Deep", (node, inputs, outputs) -> deep(0));
      fails(Status.INTERNAL, "", () -> Tiny.session(runtime, Tiny.custom("Deep")).run(x));
      assertEquals(Status.INTERNAL, RequestsTest.failureOf(Tiny.session(runtime, Tiny.custom("Deep")).submit(null, x)).status());
    }
  }

  private static int deep(int depth) {
    return deep(depth + 1) + 1;
  }

  @Test
  void whatInferThrowsIsTheModelsError() {
    try (Runtime runtime = Tiny.runtime()) {
      for (Object given : new Object[] {new TensorSpec[0], new TensorSpec[] {new TensorSpec(DType.FLOAT32, new long[9])}, "nothing to say"}) {
        String name = "Wrong" + given.hashCode();
        runtime.registerOperator(
            new OperatorDefinition("mine", name),
            new Operator() {
              @Override
              public TensorSpec[] infer(Node node, TensorView[] inputs, int outputs) {
                if (given instanceof String) throw new IllegalArgumentException((String) given);
                return (TensorSpec[]) given;
              }

              @Override
              public void run(Node node, TensorView[] inputs, TensorView[] outputs) {}
            });
        String expected = given instanceof String ? "nothing to say" : given instanceof TensorSpec[] specs && specs.length == 0 ? "infer gave 0 for 1 outputs" : "rank 9";
        EvenerException failure = org.junit.jupiter.api.Assertions.assertThrows(EvenerException.class, () -> Tiny.session(runtime, Tiny.custom(name)));
        contains(failure.getMessage(), expected);
      }
    }
  }

  @Test
  void viewsEndWithTheirCall() {
    AtomicReference<TensorView> view = new AtomicReference<>();
    AtomicReference<Node> kept = new AtomicReference<>();
    try (Runtime runtime = Tiny.runtime();
        Tensor x = floats(runtime, 1)) {
      register(
          runtime,
          "Keep",
          (node, inputs, outputs) -> {
            view.set(outputs[0]);
            kept.set(node);
            outputs[0].set(inputs[0].toFloats());
          });
      holds(Tiny.session(runtime, Tiny.custom("Keep")).run(x)[0], 1);
      fails(Status.WRONG_STATE, "has returned", () -> view.get().toFloats());
      fails(Status.WRONG_STATE, "has returned", () -> view.get().set(new float[] {1}));
      fails(Status.INVALID_HANDLE, "", () -> kept.get().name());
      fails(Status.INVALID_HANDLE, "", () -> kept.get().type("any"));
    }
  }

  @Test
  void anOperatorMayKeepToTheCallersThread() {
    ThreadLocal<Float> factor = ThreadLocal.withInitial(() -> 1f);
    factor.set(5f);
    Thread caller = Thread.currentThread();
    try (Runtime runtime = Tiny.runtime();
        Tensor x = floats(runtime, 1, 2)) {
      runtime.registerOperator(
          new OperatorDefinition("mine", "Local").onCallersThread(),
          operator(
              (node, inputs, outputs) -> {
                assertEquals(caller, Thread.currentThread());
                float[] made = inputs[0].toFloats();
                for (int i = 0; i < made.length; i++) made[i] *= factor.get();
                outputs[0].set(made);
              }));
      try (Session session = Tiny.session(runtime, Tiny.custom("Local"))) {
        for (int i = 0; i < 20; i++) holds(session.run(x)[0], 5, 10);
        fails(Status.UNSUPPORTED, "the_Local", () -> session.submit(null, x));
      }
    }
  }

  @Test
  void definitionsAreChecked() {
    try (Runtime runtime = Tiny.runtime()) {
      Operator nothing = operator((node, inputs, outputs) -> {});
      fails(Status.INVALID_ARGUMENT, "", () -> runtime.registerOperator(new OperatorDefinition("", "Scale"), nothing));
      fails(Status.INVALID_ARGUMENT, "null", () -> runtime.registerOperator(new OperatorDefinition("mine", "Scale"), null));
      fails(Status.INVALID_ARGUMENT, "place 32", () -> new OperatorDefinition("mine", "Scale").valueInputs(32));
      fails(Status.INVALID_ARGUMENT, "", () -> runtime.registerOperator(new OperatorDefinition("mine", "Scale").inputs(3, 2), nothing));
      runtime.registerOperator(new OperatorDefinition("mine", "Many").since(1).inputs(0, -1).outputs(1, -1).valueInputs(0), nothing);
      fails(Status.INVALID_ARGUMENT, "Many", () -> runtime.registerOperator(new OperatorDefinition("mine", "Many"), nothing));
    }
  }
}

package evener;

import static evener.Tiny.fails;
import static evener.Tiny.floats;
import static evener.Tiny.holds;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.ref.WeakReference;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;

class LifetimesTest {
  @Test
  void everythingMayBeClosedTwiceAndNotUsedThen() {
    Runtime runtime = Tiny.runtime();
    Model model = runtime.load(Tiny.twice());
    Session session = new Session(runtime, model);
    Tensor x = floats(runtime, 1);
    Device device = runtime.device("cpu");
    Event event = device.recordEvent();
    Value value = Value.of(x);
    CancelToken token = new CancelToken();
    Request<Tensor> request = session.submit(null, x);
    for (int i = 0; i < 2; i++) {
      request.close();
      for (NativeObject object : List.of(token, value, event, device, x, session, model, runtime)) object.close();
    }
    List<Executable> calls =
        List.of(
            event::await,
            device::info,
            device::trimMemory,
            x::info,
            x::toFloats,
            x::buffer,
            () -> x.part(0, 1),
            () -> x.copyTo(device),
            () -> x.copyInto(x),
            () -> Value.of(x),
            value::parts,
            () -> session.run(x),
            () -> session.explain(Format.TEXT),
            () -> session.submit(null, x),
            session::inputs,
            () -> model.describe(Format.TEXT),
            runtime::devices,
            () -> runtime.load(Tiny.twice()),
            () -> runtime.session("any"),
            () -> new Session(runtime, model),
            () -> floats(runtime, 1),
            () -> Tensor.wrap(runtime, ByteBuffer.allocateDirect(4).order(ByteOrder.nativeOrder()), DType.FLOAT32, 1),
            () -> Tensor.of(runtime, new String[] {"a"}, 1),
            () -> runtime.statistics(Format.TEXT));
    for (Executable call : calls) fails(Status.INVALID_HANDLE, "closed", call);
  }

  @Test
  void closeDuringARun() throws Exception {
    Runtime runtime = Tiny.runtime();
    Tiny.Gate gate = new Tiny.Gate(runtime);
    Session session = Tiny.session(runtime, Tiny.custom("Gate"));
    Tensor x = floats(runtime, 7);
    CompletableFuture<float[]> run = CompletableFuture.supplyAsync(() -> session.run(x)[0].toFloats(), command -> new Thread(command).start());
    gate.began.acquire();
    session.close();
    x.close();
    runtime.close();
    System.gc();
    gate.open.countDown();
    assertEquals(7, run.get(600, TimeUnit.SECONDS)[0]);
    fails(Status.INVALID_HANDLE, "closed", () -> session.run(x));
  }

  @Test
  void closeWhileOtherThreadsCopy() throws Exception {
    try (Runtime runtime = Tiny.runtime()) {
      for (int i = 0; i < 200; i++) {
        Tensor tensor = Tensor.of(runtime, new float[1 << 14], 1 << 14);
        Thread closer = new Thread(tensor::close);
        closer.start();
        try {
          for (int k = 0; k < 100; k++) assertEquals(0, tensor.toFloats()[1 << 13]);
        } catch (EvenerException failure) {
          assertEquals(Status.INVALID_HANDLE, failure.status());
        }
        closer.join();
        fails(Status.INVALID_HANDLE, "closed", tensor::info);
      }
    }
  }

  /** A use that has begun has the handle to its end. The library itself never sees a handle that is closed. */
  @Test
  void aUseBegunBesideACloseEndsNormally() throws Exception {
    ExecutorService closer = Executors.newSingleThreadExecutor();
    try (Runtime runtime = Tiny.runtime()) {
      for (int i = 0; i < 20000; i++) {
        Tensor tensor = floats(runtime, 1);
        Future<?> closed = closer.submit(tensor::close);
        EvenerException failure =
            assertThrows(
                EvenerException.class,
                () -> {
                  while (true) tensor.mapped(Numbers.EVN_MAP_READ, (address, size) -> {});
                });
        assertEquals("the tensor is closed", failure.detail());
        closed.get(600, TimeUnit.SECONDS);
      }
    } finally {
      closer.shutdown();
    }
  }

  @Test
  void whatIsUsedInACopyIsClosedBehindIt() {
    try (Runtime runtime = Tiny.runtime()) {
      Tensor tensor = floats(runtime, 1, 2);
      long before = runtime.device("cpu").memoryStats().byClass().get("tensors");
      tensor.mapped(
          Numbers.EVN_MAP_READ,
          (address, size) -> {
            tensor.close();
            fails(Status.INVALID_HANDLE, "closed", tensor::info);
            float[] there = new float[2];
            Native.readFloats(address, there, 2);
            assertEquals(2, there[1]);
          });
      assertTrue(runtime.device("cpu").memoryStats().byClass().get("tensors") < before);
    }
  }

  @Test
  void threadsOfTheLibraryAreDaemonsAndAreDetachedWhenTheyEnd() throws Exception {
    Set<Thread> attached = ConcurrentHashMap.newKeySet();
    try (Runtime runtime = Tiny.runtime();
        Session session = Tiny.session(runtime, Tiny.twice());
        Tensor x = floats(runtime, 1)) {
      for (int i = 0; i < 20; i++) {
        session
            .submit(
                null,
                task -> {
                  attached.add(Thread.currentThread());
                  task.run();
                },
                new Tensor[] {x},
                new Tensor[1])
            .get(600, TimeUnit.SECONDS)[0]
            .close();
      }
      assertTrue(session.finish(null));
      assertFalse(attached.isEmpty());
      for (Thread thread : attached) assertTrue(thread.isDaemon() && thread != Thread.currentThread(), thread::toString);
    }
    for (Thread thread : attached) {
      thread.join(60000);
      assertFalse(thread.isAlive());
    }
  }

  /** What other threads close is either still there, or said to be closed. */
  @Test
  void threadsCloseWhatOthersUse() throws Exception {
    try (Runtime runtime = Tiny.runtime();
        Model model = runtime.load(Tiny.twice())) {
      Session[] sessions = new Session[4];
      Tensor[] tensors = new Tensor[4];
      for (int i = 0; i < 4; i++) {
        sessions[i] = new Session(runtime, model);
        tensors[i] = floats(runtime, i);
      }
      List<CompletableFuture<Integer>> threads = new ArrayList<>();
      for (int number = 0; number < 4; number++) {
        java.util.Random random = new java.util.Random(number);
        threads.add(
            CompletableFuture.supplyAsync(
                () -> {
                  int good = 0;
                  for (int i = 0; i < 1000; i++) {
                    int at = random.nextInt(4);
                    Session session = sessions[at];
                    Tensor tensor = tensors[random.nextInt(4)];
                    try {
                      switch (random.nextInt(8)) {
                        case 0 -> {
                          sessions[at] = new Session(runtime, model);
                          session.close();
                        }
                        case 1 -> {
                          tensors[at] = floats(runtime, i);
                          tensor.close();
                        }
                        case 2 -> session.submit(null, tensor);
                        case 3 -> session.submit(null, tensor).close();
                        case 4 -> session.explain(Format.JSON);
                        case 5 -> tensor.buffer().getFloat(0);
                        default -> session.run(tensor)[0].close();
                      }
                      good++;
                    } catch (EvenerException failure) {
                      assertEquals(Status.INVALID_HANDLE, failure.status(), failure.getMessage());
                    }
                  }
                  return good;
                },
                command -> new Thread(command).start()));
      }
      for (CompletableFuture<Integer> thread : threads) assertTrue(thread.get(600, TimeUnit.SECONDS) > 100);
    }
  }

  /** What is forgotten is closed by the collector: the library's own ledger says so. */
  @Test
  void whatIsForgottenIsCollected() throws Exception {
    try (Runtime runtime = new Runtime(Tiny.options().memoryLimit(1 << 24));
        Device cpu = runtime.device("cpu")) {
      for (int i = 0; i < 200; i++) { // each is 1 MiB, under a cap of 16
        for (int attempt = 0; ; attempt++) {
          try {
            Tensor made = cpu.zeros(DType.UINT8, 1 << 20);
            if (i % 2 == 0) made.buffer().put(0, (byte) 1);
            break;
          } catch (EvenerException failure) {
            assertEquals(Status.OUT_OF_MEMORY, failure.status());
            assertTrue(attempt < 1000, "nothing was collected");
            System.gc();
            Thread.sleep(1);
          }
        }
      }
    }
  }

  private static void collected(WeakReference<?> reference) throws Exception {
    for (int attempt = 0; reference.get() != null; attempt++) {
      assertTrue(attempt < 1000, "C still holds it");
      System.gc();
      Thread.sleep(1);
    }
  }

  /** Makes everything that C is given references of, in a method of its own whose locals are gone afterwards. */
  private static List<WeakReference<?>> used() throws Exception {
    List<WeakReference<?>> made = new ArrayList<>();
    Object[] seen = new Object[1];
    RuntimeOptions options = Tiny.options().log(LogLevel.DEBUG, record -> seen[0] = record);
    made.add(new WeakReference<>(seen));
    try (Runtime runtime = new Runtime(options)) {
      Tiny.Gate gate = new Tiny.Gate(runtime);
      made.add(new WeakReference<>(gate));
      gate.open.countDown();
      ByteBuffer buffer = ByteBuffer.allocateDirect(4).order(ByteOrder.nativeOrder());
      made.add(new WeakReference<>(buffer));
      int[] calls = {0};
      QuantizerOptions.Progress progress = (what, done, total) -> ++calls[0] > 0;
      made.add(new WeakReference<>(progress));
      try (Session session = Tiny.session(runtime, Tiny.custom("Gate"));
          Tensor x = Tensor.wrap(runtime, buffer, DType.FLOAT32, 1);
          Quantizer quantizer = Quantizer.open(runtime, null, new QuantizerOptions().data(Tiny.product(), null).progress(progress))) {
        Request<Tensor> request = session.submit(null, x);
        made.add(new WeakReference<>(request));
        request.get(600, TimeUnit.SECONDS)[0].close();
        assertTrue(session.finish(null));
      }
      // Where the library refuses something it takes no reference.
      ByteBuffer refused = ByteBuffer.allocateDirect(8).order(ByteOrder.nativeOrder());
      made.add(new WeakReference<>(refused));
      fails(Status.INVALID_ARGUMENT, "", () -> Tensor.wrap(runtime, refused, DType.FLOAT32, 1));
      Operator again = new Tiny.Gate(Tiny.runtime());
      made.add(new WeakReference<>(again));
      fails(Status.INVALID_ARGUMENT, "Gate", () -> runtime.registerOperator(new OperatorDefinition("mine", "Gate"), again));
      QuantizerOptions.Progress unused = (what, done, total) -> calls[0] == 0;
      made.add(new WeakReference<>(unused));
      fails(Status.INVALID_MODEL, "", () -> Quantizer.open(runtime, null, new QuantizerOptions().data(new byte[3], null).progress(unused)));
    }
    return made;
  }

  @Test
  void nothingIsHeldByCBeyondItsUse() throws Exception {
    for (WeakReference<?> reference : used()) collected(reference);
  }

  @Test
  void theCollectorRunsAtEveryStep() throws Exception {
    Runtime runtime = new Runtime(Tiny.options().log(LogLevel.DEBUG, record -> System.gc()));
    System.gc();
    runtime.registerOperator(
        new OperatorDefinition("mine", "Collect"),
        new Operator() {
          @Override
          public TensorSpec[] infer(Node node, TensorView[] inputs, int outputs) {
            System.gc();
            return new TensorSpec[] {inputs[0].spec()};
          }

          @Override
          public void run(Node node, TensorView[] inputs, TensorView[] outputs) {
            System.gc();
            float[] x = inputs[0].toFloats();
            System.gc();
            outputs[0].set(x);
          }
        });
    Model model = runtime.load(Tiny.custom("Collect"));
    System.gc();
    Session session = new Session(runtime, model);
    model = null;
    runtime = null; // the session keeps it
    System.gc();
    try (Runtime another = Tiny.runtime()) {
      fails(Status.INVALID_ARGUMENT, "runtime", () -> session.submit(null, floats(another, 1)));
    }
    System.gc();
    session.close();
    Runtime last = Tiny.runtime();
    Session kept = Tiny.session(last, Tiny.twice());
    for (int i = 0; i < 20; i++) {
      Request<Tensor> request = kept.submit(new RunOptions().cancel(new CancelToken()), floats(last, i));
      System.gc();
      Tensor y = request.get(600, TimeUnit.SECONDS)[0];
      request = null;
      System.gc();
      ByteBuffer buffer = y.buffer();
      y = null;
      System.gc();
      assertEquals(2 * i, buffer.getFloat(0));
      holds(kept.run(floats(last, i))[0].part(0, 1).copyTo(last.device("cpu")), 2 * i);
    }
  }

  /** Gives the process's memory in bytes. */
  private static long resident() throws Exception {
    for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
      if (line.startsWith("VmRSS:")) return Long.parseLong(line.replaceAll("\\D", "")) << 10;
    }
    throw new AssertionError("the system does not say how much memory the process has");
  }

  @Test
  void aMillionSmallCallsTakeNoMemory() throws Exception {
    try (Runtime runtime = new Runtime(Tiny.options().threads(1));
        Session session = Tiny.session(runtime, Tiny.twice());
        Tensor x = floats(runtime, 1);
        Tensor y = floats(runtime, 0)) {
      Tensor[] inputs = {x};
      Tensor[] outputs = {y};
      long before = 0;
      for (int round = -5; round < 10; round++) {
        if (round == 0) {
          System.gc();
          before = resident();
        }
        for (int i = 0; i < 50000; i++) assertEquals(1, x.info().dims()[0]);
        for (int i = 0; i < 48000; i++) session.runInto(null, inputs, outputs);
        for (int i = 0; i < 500; i++) {
          session.run(x)[0].close();
          session.submit(null, x).join()[0].close();
          Tensor.wrap(runtime, ByteBuffer.allocateDirect(4).order(ByteOrder.nativeOrder()), DType.FLOAT32, 1).close();
          y.buffer();
          assertTrue(session.statistics(Format.JSON).length() > 100);
        }
      }
      System.gc();
      long grown = resident() - before;
      assertTrue(grown < 24 << 20, grown + " bytes more after a million calls");
    }
  }
}

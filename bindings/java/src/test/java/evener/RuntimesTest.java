package evener;

import static evener.Tiny.contains;
import static evener.Tiny.fails;
import static evener.Tiny.floats;
import static evener.Tiny.holds;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class RuntimesTest {
  private static final String STRICT =
      "version: 1\nplacement:\n  default: cpu\n  rules:\n    - {match: {op: MatMul}, device: cpu, numerics: strict}\n";

  @Test
  void yamlPlacesNodesAndExplainSaysSo() {
    try (Runtime runtime = new Runtime(Tiny.options().config(STRICT));
        Session session = Tiny.session(runtime, Tiny.product())) {
      String text = session.explain(Format.JSON).replace(" ", "");
      for (String part : List.of("\"name\":\"the_MatMul\"", "\"device\":\"cpu\"", "\"rule_line\":5", "\"numerics\":\"strict\"")) contains(text, part);
      contains(session.explain(Format.SVG), "<svg");
      contains(session.explain(Format.DOT), "digraph");
      runtime.reconfigure("version: 1\n", null);
      assertFalse(session.explain(Format.JSON).contains("strict"));
      fails(Status.CONFIG, "version", () -> runtime.reconfigure("version: 9\n", null));
      fails(Status.IO, "/nowhere.yaml", () -> runtime.reconfigure(Path.of("/nowhere.yaml"), null));
      fails(Status.TIMEOUT, "", () -> runtime.reconfigure(STRICT, new Deadline().at(1)));
      runtime.reconfigure("", new Deadline().after(Duration.ofHours(1)));
      fails(Status.CONFIG, "placement", () -> new Runtime(new RuntimeOptions().config("version: 1\nplacemint: {}\n")));
      fails(Status.IO, "/nowhere.yaml", () -> new Runtime(new RuntimeOptions().config(Path.of("/nowhere.yaml"))));
      fails(Status.INVALID_ARGUMENT, "config_size", () -> new Runtime(new RuntimeOptions().config("")));
    }
  }

  @Test
  void filesOfWeightsBehindLinks(@TempDir Path root) throws Exception {
    Path store = Files.createDirectory(root.resolve("store"));
    Path models = Files.createDirectory(root.resolve("models"));
    Files.write(store.resolve("w.evener-bin"), Tiny.doubling());
    Files.createSymbolicLink(models.resolve("w.bin"), Path.of("../store/w.evener-bin"));
    Path file = Files.write(models.resolve("m.onnx"), Tiny.externalProduct("w.bin"));
    float[] threes = new float[64];
    float[] sixes = new float[64];
    Arrays.fill(threes, 3);
    Arrays.fill(sixes, 6);
    try (Runtime runtime = Tiny.runtime();
        Tensor x = Tensor.of(runtime, threes, 1, 64)) {
      fails(Status.INVALID_MODEL, "", () -> runtime.load(file));
      fails(Status.INVALID_MODEL, "", () -> runtime.load(file, new ModelOptions().allowedRoots(models), null));
      for (boolean isMapped : new boolean[] {false, true}) {
        ModelOptions options = new ModelOptions().allowedRoots(models, store);
        if (isMapped) options.mapFiles();
        try (Model model = runtime.load(file, options, null);
            Model ofBytes = runtime.load(Tiny.externalProduct("w.bin"), options.externalDirectory(models));
            Session session = new Session(runtime, model);
            Session other = new Session(runtime, ofBytes)) {
          holds(session.run(x)[0], sixes);
          holds(other.run(x)[0], sixes);
          assertEquals(isMapped, Files.readString(Path.of("/proc/self/maps")).contains("/w.evener-bin"));
        }
      }
    }
  }

  @Test
  void aModelThatTheConfigurationNames(@TempDir Path folder) throws Exception {
    Files.write(folder.resolve("named.onnx"), Tiny.twice());
    Path config = Files.writeString(folder.resolve("named.yaml"), "version: 1\nmodels:\n  twice: {path: named.onnx}\n");
    try (Runtime runtime = new Runtime(Tiny.options().config(config));
        Session session = runtime.session("twice")) {
      holds(session.run(floats(runtime, 2))[0], 4);
      fails(Status.INVALID_ARGUMENT, "twice", () -> runtime.session("thrice"));
      String text = runtime.inspect(folder.resolve("named.onnx"), Map.of("x", new long[] {5}), Format.JSON);
      contains(text.replace(" ", ""), "\"loads\":true");
      runtime.reconfigure(config, null);
    }
  }

  @Test
  void theLogIsToldAndWhatItThrowsGoesToTheThreadsHandler() {
    Set<String> seen = ConcurrentHashMap.newKeySet();
    Set<String> thrown = ConcurrentHashMap.newKeySet();
    Thread thread = Thread.currentThread();
    Thread.UncaughtExceptionHandler before = thread.getUncaughtExceptionHandler();
    thread.setUncaughtExceptionHandler((of, failure) -> thrown.add(failure.getMessage()));
    RuntimeOptions options =
        Tiny.options()
            .log(
                LogLevel.DEBUG,
                record -> {
                  seen.add(record.event());
                  assertTrue(record.timestampNanoseconds() > 0 && record.level() != null);
                  if (record.event().equals("session.created")) assertFalse(record.fields().isEmpty());
                  throw new IllegalStateException("a log that throws");
                });
    try (Runtime runtime = new Runtime(options)) {
      Tiny.session(runtime, Tiny.twice()).close();
    } finally {
      thread.setUncaughtExceptionHandler(before);
    }
    assertTrue(seen.containsAll(Set.of("runtime.created", "session.created")), seen::toString);
    assertEquals(Set.of("a log that throws"), thrown);
  }

  @Test
  void memoryIsCountedAndCapped() {
    try (Runtime runtime = new Runtime(Tiny.options().memoryLimit(1 << 20));
        Device cpu = runtime.device("cpu")) {
      long before = cpu.memoryStats().byClass().get("tensors");
      Tensor tensor = cpu.zeros(DType.UINT8, 1 << 18);
      MemoryStats with = cpu.memoryStats();
      assertEquals(1 << 18, with.byClass().get("tensors") - before);
      assertEquals(1 << 20, with.limit());
      EvenerException failure = fails(Status.OUT_OF_MEMORY, "", () -> cpu.zeros(DType.UINT8, 1 << 20));
      assertEquals(1 << 20, failure.bytesRequested());
      assertTrue(failure.bytesAvailable() < 1 << 20);
      assertEquals("cpu", failure.device());
      cpu.setMemoryLimit(-1);
      cpu.zeros(DType.UINT8, 1 << 20).close();
      tensor.close();
      cpu.setCachePolicy(0, Trim.ALWAYS);
      cpu.trimMemory();
      cpu.resetMemoryPeak();
      MemoryStats after = cpu.memoryStats();
      assertEquals(0, after.byClass().get("tensors"));
      assertEquals(0, after.cached());
      assertEquals(-1, after.limit());
      assertEquals(after.current(), after.peak());
      assertEquals(Trim.ALWAYS, after.trim());
      assertTrue(after.allocations() >= 2 && after.fragmentation() == 0);
      fails(Status.INVALID_ARGUMENT, "", () -> cpu.setMemoryLimit(1));
    }
  }

  @Test
  void devicesSessionsAndStatisticsAreTold() {
    try (Runtime runtime = Tiny.runtime();
        Model model = runtime.load(Tiny.twice());
        Tensor x = floats(runtime, 1)) {
      DeviceInfo info = runtime.devices().get(0).info();
      assertEquals(DeviceKind.CPU, info.kind());
      assertEquals("cpu", info.name());
      assertEquals(DeviceState.READY, info.state());
      assertEquals(2, info.computeUnits());
      assertFalse(info.driver().isEmpty());
      assertEquals("", runtime.devices().get(0).condition());
      fails(Status.DEVICE_UNAVAILABLE, "cpu", () -> runtime.device("nonsense"));
      fails(Status.DEVICE_UNAVAILABLE, "", () -> new Session(runtime, model, new SessionOptions().device("nonsense"), null));
      SessionOptions options =
          new SessionOptions()
              .name("exact")
              .numerics(Numerics.STRICT)
              .precision(Precision.FP32, "type:Add")
              .products(Products.OWN)
              .memory(MemoryPlan.SMALL)
              .arenas(Arenas.OWN)
              .concurrency(1)
              .idleArenaBytes(1 << 20)
              .cache("", false, false)
              .disablePasses()
              .batching(new Batching().maxBatch(4).maxDelay(Duration.ZERO));
      try (Session session = new Session(runtime, model, options, new Deadline().after(Duration.ofMinutes(10)))) {
        session.traceStart(100);
        holds(session.run(x)[0], 2);
        session.traceStop();
        fails(Status.WRONG_STATE, "", session::traceStop);
        contains(session.trace(Format.TEXT), "the_Add");
        contains(session.trace(Format.JSON), "traceEvents");
        assertTrue(session.memoryStats().plans() >= 1);
        contains(session.statistics(Format.JSON), "exact");
        contains(runtime.statistics(Format.PROMETHEUS), "evener_requests_total");
        contains(runtime.describeDevices(Format.TEXT), "cpu");
        try (Session other = Tiny.session(runtime, Tiny.twice())) {
          contains(session.compare(other, Format.JSON, x), "largest_error");
        }
      }
      contains(Evener.describePasses(Format.JSON), "summary");
      contains(Evener.version(), "0.");
      assertTrue(Evener.now() > 0);
      contains(runtime.calibrate(model, Format.JSON, new Deadline().after(Duration.ofMinutes(10))), "devices");
      fails(Status.TIMEOUT, "", () -> runtime.calibrate(null, Format.JSON, new Deadline().at(1)));
    }
  }

  @Test
  void batchesNeedAMaskThatThereIs() {
    try (Runtime runtime = Tiny.runtime();
        Model model = runtime.load(Tiny.twice())) {
      SessionOptions options = new SessionOptions().batching(new Batching().mask("no such input", 16, 32));
      fails(Status.INVALID_ARGUMENT, "no such input", () -> new Session(runtime, model, options, null));
    }
  }

  @Test
  void tensorsOfAnOpenclDeviceAreCopied() {
    try (Runtime runtime = Tiny.runtime()) {
      Device device;
      try {
        device = runtime.device("opencl:0");
      } catch (EvenerException failure) {
        assertEquals(Status.DEVICE_UNAVAILABLE, failure.status());
        Assumptions.abort("there is no OpenCL device");
        return;
      }
      assertEquals(DeviceKind.OPENCL, device.info().kind());
      try (Tensor x = floats(runtime, 1, 2);
          Tensor there = x.copyTo(device);
          Tensor again = device.zeros(DType.FLOAT32, 2);
          Model model = runtime.load(Tiny.twice());
          Session session = new Session(runtime, model, new SessionOptions().device("opencl:0"), null)) {
        assertEquals(device.info().name(), there.info().device());
        holds(there, 1, 2);
        fails(Status.UNSUPPORTED, "", there::buffer);
        try (Event event = there.copyAsync(again)) {
          device.waitEvent(event);
          event.await();
        }
        holds(again, 1, 2);
        Tensor made = session.run(new RunOptions().outputsOnDevice(true), there)[0];
        assertEquals(device.info().name(), made.info().device());
        holds(made, 2, 4);
        holds(session.run(x)[0], 2, 4);
        assertTrue(device.memoryStats().byClass().get("tensors") > 0);
        contains(session.explain(Format.JSON), device.info().name());
      }
    }
  }

  private static Tensor rows(Runtime runtime, int seed) {
    float[] data = new float[16 * 64];
    for (int i = 0; i < data.length; i++) data[i] = (i * 31 + seed * 7) % 17 / 17f - 0.5f;
    return Tensor.of(runtime, data, 16, 64);
  }

  @Test
  void aModelIsQuantized(@TempDir Path folder) {
    AtomicInteger calls = new AtomicInteger();
    Path file = folder.resolve("quantized.onnx");
    try (Runtime runtime = Tiny.runtime()) {
      QuantizerOptions options =
          new QuantizerOptions()
              .data(Tiny.product(), null)
              .mode(QuantizeMode.STATIC)
              .calibration(Calibration.PERCENTILE)
              .percentile(99.9)
              .progress((what, done, total) -> calls.incrementAndGet() > 0 && !what.isEmpty());
      Quantizer quantizer = Quantizer.open(runtime, null, options);
      fails(Status.WRONG_STATE, "", quantizer::finish);
      for (int seed = 0; seed < 3; seed++) quantizer.addBatch(Map.of("x", rows(runtime, seed)));
      fails(Status.INVALID_ARGUMENT, "", () -> quantizer.addBatch(Map.of("x", Tensor.of(runtime, new int[] {1}, 1))));
      fails(Status.INVALID_ARGUMENT, "z", () -> quantizer.addBatch(Map.of("z", rows(runtime, 0))));
      quantizer.guard(Map.of("x", rows(runtime, 5)), new GuardOptions(true, false, 0, 0));
      Model model = quantizer.finish();
      quantizer.verify(Map.of("x", rows(runtime, 6)));
      contains(quantizer.report(Format.JSON).replace(" ", ""), "\"quantized_nodes\":1");
      quantizer.save(file);
      quantizer.close();
      quantizer.close();
      fails(Status.INVALID_HANDLE, "the quantizer is closed", () -> quantizer.save(file));
      assertTrue(calls.get() > 0);
      Tensor x = rows(runtime, 9);
      float[] expected = Tiny.session(runtime, Tiny.product()).run(x)[0].toFloats();
      float[] got = new Session(runtime, model).run(x)[0].toFloats();
      assertArrayEquals(got, new Session(runtime, runtime.load(file)).run(x)[0].toFloats());
      double wrong = 0;
      double signal = 0;
      for (int i = 0; i < got.length; i++) {
        wrong += Math.pow(expected[i] - got[i], 2);
        signal += Math.pow(expected[i], 2);
      }
      assertTrue(wrong > 0 && wrong < signal / 100, wrong + " of " + signal);
    }
  }

  @Test
  void aQuantizationIsCancelled() {
    try (Runtime runtime = Tiny.runtime();
        CancelToken token = new CancelToken();
        Tensor x = rows(runtime, 0)) {
      QuantizerOptions options = new QuantizerOptions().data(Tiny.product(), null);
      try (Quantizer quantizer = Quantizer.open(runtime, null, options.progress((what, done, total) -> false))) {
        fails(Status.CANCELLED, "", () -> quantizer.addBatch(Map.of("x", x)));
      }
      options.progress(
          (what, done, total) -> {
            throw new IllegalStateException("progress throws");
          });
      try (Quantizer quantizer = Quantizer.open(runtime, null, options)) {
        EvenerException failure = fails(Status.CANCELLED, "", () -> quantizer.addBatch(Map.of("x", x)));
        assertEquals("progress throws", failure.getCause().getMessage());
      }
      try (Quantizer quantizer = Quantizer.open(runtime, null, options.progress(null).deadline(new Deadline().cancel(token)))) {
        quantizer.addBatch(Map.of("x", x));
        token.cancel();
        EvenerException failure = fails(Status.CANCELLED, "", () -> quantizer.addBatch(Map.of("x", x)));
        assertEquals(null, failure.getCause());
      }
      fails(Status.IO, "/nowhere.onnx", () -> Quantizer.open(runtime, Path.of("/nowhere.onnx"), new QuantizerOptions().progress((what, done, total) -> true)));
      fails(Status.INVALID_ARGUMENT, "both", () -> Quantizer.open(runtime, Path.of("/nowhere.onnx"), options.deadline(new Deadline())));
      fails(Status.INVALID_ARGUMENT, "", () -> Quantizer.open(runtime, null, new QuantizerOptions().data(Tiny.product(), null).percentile(3)));
      for (QuantizeMode mode : List.of(QuantizeMode.DYNAMIC, QuantizeMode.WEIGHTS, QuantizeMode.FLOAT16)) {
        QuantizerOptions of = new QuantizerOptions().data(Tiny.product(), null).mode(mode);
        if (mode == QuantizeMode.WEIGHTS) of.weights(4, 16);
        try (Quantizer quantizer = Quantizer.open(runtime, null, of);
            Model model = quantizer.finish();
            Session session = new Session(runtime, model)) {
          assertEquals(16 * 64, session.run(x)[0].toFloats().length);
        }
      }
    }
  }
}

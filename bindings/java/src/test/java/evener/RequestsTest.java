package evener;

import static evener.Tiny.fails;
import static evener.Tiny.floats;
import static evener.Tiny.holds;
import static evener.Tiny.node;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.junit.jupiter.api.Test;

class RequestsTest {
  private static final long LONG = 600;

  static EvenerException failureOf(CompletableFuture<?> future) {
    ExecutionException failure = assertThrows(ExecutionException.class, () -> future.get(LONG, TimeUnit.SECONDS));
    return assertInstanceOf(EvenerException.class, failure.getCause());
  }

  @Test
  void manyRequestsAtATimeWithDeadlines() throws Exception {
    try (Runtime runtime = Tiny.runtime();
        Session session = Tiny.session(runtime, Tiny.twice())) {
      RunOptions options = new RunOptions().deadlineAfter(Duration.ofMinutes(10)).timeout(Duration.ofMinutes(10));
      List<Request<Tensor>> requests = new ArrayList<>();
      for (int i = 0; i < 16; i++) {
        try (Tensor x = floats(runtime, i)) {
          requests.add(session.submit(options, x)); // which keeps it
        }
      }
      System.gc();
      CompletableFuture.allOf(requests.toArray(CompletableFuture[]::new)).get(LONG, TimeUnit.SECONDS);
      for (int i = 0; i < 16; i++) {
        holds(requests.get(i).join()[0], 2 * i);
        requests.get(i).close();
        holds(requests.get(i).join()[0], 2 * i);
      }
      assertEquals(4, requests.get(2).thenApply(outputs -> outputs[0].toFloats()[0]).join());
      assertEquals(Status.TIMEOUT, failureOf(session.submit(new RunOptions().deadline(1), floats(runtime, 1))).status());
      assertEquals(Status.INVALID_ARGUMENT, failureOf(session.submit(null, Tensor.of(runtime, new int[] {1}, 1))).status());
      fails(Status.INVALID_ARGUMENT, "", () -> session.submit(null, null, new Tensor[0], new Tensor[0]));
    }
  }

  @Test
  void outputsMayBeGiven() {
    try (Runtime runtime = Tiny.runtime();
        Session session = Tiny.session(runtime, Tiny.twice());
        Tensor x = floats(runtime, 3);
        Tensor y = floats(runtime, 0)) {
      Tensor[] outputs = session.submit(null, Runnable::run, new Tensor[] {x}, new Tensor[] {y}).join();
      assertSame(y, outputs[0]);
      holds(y, 6);
    }
  }

  @Test
  void anExecutorThatRefusesLosesNothing() throws Exception {
    try (Runtime runtime = Tiny.runtime();
        Session session = Tiny.session(runtime, Tiny.twice());
        Tensor x = floats(runtime, 3)) {
      Request<Tensor> request =
          session.submit(
              null,
              task -> {
                throw new RejectedExecutionException("shut");
              },
              new Tensor[] {x},
              new Tensor[1]);
      holds(request.get(LONG, TimeUnit.SECONDS)[0], 6);
      Request<Tensor> broken =
          session.submit(
              null,
              task -> {
                throw new IllegalStateException("broken");
              },
              new Tensor[] {x},
              new Tensor[1]);
      ExecutionException failure = assertThrows(ExecutionException.class, () -> broken.get(LONG, TimeUnit.SECONDS));
      assertEquals("broken", failure.getCause().getMessage());
    }
  }

  /** Gives y = -gate(x): a run that has been told to stop while the gate was shut ends behind it. */
  private static byte[] gateAndMore() {
    return Tiny.model(
        List.of(node("Gate", List.of("x"), List.of("m")).text(7, "mine"), node("Neg", List.of("m"), List.of("y"))),
        List.of(Tiny.vector("x")),
        List.of(Tiny.vector("y")),
        List.of());
  }


  /** How many requests of the runtime's only session have ended, with an outcome or with any. */
  private static int ended(Runtime runtime, String outcome) {
    int sum = 0;
    for (String line : runtime.statistics(Format.PROMETHEUS).split("\n")) {
      if (line.startsWith("evener_requests_total") && line.contains("outcome=\"" + outcome)) sum += (int) Double.parseDouble(line.substring(line.lastIndexOf(' ')));
    }
    return sum;
  }

  private interface Ends {
    void end(Request<Tensor> request, CancelToken token) throws Exception;
  }

  private static void reachesTheRun(Ends ends, Class<? extends Throwable> expected) throws Exception {
    try (Runtime runtime = Tiny.runtime();
        CancelToken token = new CancelToken()) {
      Tiny.Gate gate = new Tiny.Gate(runtime);
      Session session = Tiny.session(runtime, gateAndMore());
      Request<Tensor> request = session.submit(new RunOptions().cancel(token), floats(runtime, 1));
      gate.began.acquire();
      ends.end(request, token);
      gate.open.countDown();
      Throwable failure = assertThrows(Throwable.class, () -> request.get(LONG, TimeUnit.SECONDS));
      assertInstanceOf(expected, failure instanceof ExecutionException ? failure.getCause() : failure);
      // The run itself was told: it did not end as one that goes through.
      while (ended(runtime, "") == 0) Thread.onSpinWait();
      assertEquals(1, ended(runtime, "cancelled"));
      assertTrue(session.finish(null));
    }
  }

  @Test
  void cancellationReachesTheRun() throws Exception {
    reachesTheRun((request, token) -> assertTrue(request.cancel(true)), CancellationException.class);
    reachesTheRun((request, token) -> request.close(), CancellationException.class);
    reachesTheRun((request, token) -> token.cancel(), EvenerException.class);
    reachesTheRun(
        (request, token) -> {
          request.orTimeout(1, TimeUnit.MILLISECONDS);
          assertThrows(Exception.class, () -> request.get(LONG, TimeUnit.SECONDS));
        },
        TimeoutException.class);
  }

  @Test
  void whatIsCancelledTooLateIsClosed() throws Exception {
    try (Runtime runtime = Tiny.runtime()) {
      Tiny.Gate gate = new Tiny.Gate(runtime);
      Session session = Tiny.session(runtime, Tiny.custom("Gate"));
      List<Runnable> posted = new ArrayList<>();
      Tensor x = floats(runtime, 1, 2, 3);
      Request<Tensor> request = session.submit(null, posted::add, new Tensor[] {x}, new Tensor[1]);
      x.close();
      gate.open.countDown();
      assertTrue(session.finish(null)); // what ended it has posted, and returned
      assertEquals(1, posted.size());
      assertTrue(request.cancel(false));
      assertEquals(12, runtime.device("cpu").memoryStats().byClass().get("tensors"));
      posted.get(0).run();
      assertEquals(0, runtime.device("cpu").memoryStats().byClass().get("tensors"));
      assertTrue(request.isCancelled());
    }
  }

  @Test
  void waitingEndsAndTheRunGoesOn() throws Exception {
    try (Runtime runtime = Tiny.runtime()) {
      Tiny.Gate gate = new Tiny.Gate(runtime);
      Session session = Tiny.session(runtime, Tiny.custom("Gate"));
      Request<Tensor> request = session.submit(null, floats(runtime, 5));
      gate.began.acquire();
      assertThrows(TimeoutException.class, () -> request.get(1, TimeUnit.MILLISECONDS));
      gate.open.countDown();
      holds(request.get(LONG, TimeUnit.SECONDS)[0], 5);
      assertTrue(session.finish(null));
      session.close();
      fails(Status.INVALID_HANDLE, "the session is closed", () -> session.submit(null, floats(runtime, 1)));
    }
  }

  @Test
  void finishSaysWhetherRequestsHaveEnded() throws Exception {
    try (Runtime runtime = Tiny.runtime()) {
      Tiny.Gate gate = new Tiny.Gate(runtime);
      Session session = Tiny.session(runtime, Tiny.custom("Gate"));
      Request<Tensor> request = session.submit(null, floats(runtime, 5));
      gate.began.acquire();
      assertTrue(!session.finish(Duration.ZERO));
      fails(Status.INVALID_HANDLE, "closed", () -> session.finish(Duration.ZERO));
      gate.open.countDown();
      holds(request.get(LONG, TimeUnit.SECONDS)[0], 5);
    }
  }

  @Test
  void buffersStayWhileARequestReadsThem() throws Exception {
    try (Runtime runtime = Tiny.runtime();
        Session session = Tiny.session(runtime, Tiny.twice())) {
      for (int i = 0; i < 100; i++) {
        ByteBuffer data = ByteBuffer.allocateDirect(4000).order(ByteOrder.nativeOrder()).putFloat(3996, i);
        Request<Tensor> request;
        try (Tensor x = Tensor.wrap(runtime, data, DType.FLOAT32, 1000)) {
          request = session.submit(null, x);
        }
        data = null;
        System.gc();
        ByteBuffer.allocateDirect(4000).put(new byte[4000]);
        try (Tensor y = request.get(LONG, TimeUnit.SECONDS)[0]) {
          assertEquals(2 * i, y.toFloats()[999]);
        }
      }
    }
  }

  @Test
  void callbacksMaySubmitMore() {
    try (Runtime runtime = Tiny.runtime();
        Session session = Tiny.session(runtime, Tiny.twice());
        Tensor x = floats(runtime, 1)) {
      CompletableFuture<Tensor[]> chain = session.submit(null, Runnable::run, new Tensor[] {x}, new Tensor[1]);
      for (int i = 0; i < 5; i++) {
        chain = chain.thenCompose(outputs -> session.submit(null, Runnable::run, new Tensor[] {outputs[0]}, new Tensor[1]));
      }
      holds(chain.join()[0], 64);
      CompletableFuture<Tensor[]> broken = session.submit(null, x).thenApply(outputs -> null);
      broken.join();
      CompletableFuture<Tensor[]> failed =
          session.submit(null, x).thenApply(outputs -> {
            throw new IllegalStateException("a stage of the caller's");
          });
      assertThrows(CompletionException.class, failed::join);
    }
  }
}

package evener;

import java.lang.ref.Reference;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.RejectedExecutionException;

/**
 * An asynchronous run, a future of its outputs: whoever gets them closes them. What ends it before its run has ended ({@link #cancel}, {@link #close},
 * {@link #orTimeout}) has the run stop, too. A run that fails completes it with an {@link EvenerException}.
 *
 * @param <T> {@link Tensor} or {@link Value}
 */
public final class Request<T extends NativeObject> extends CompletableFuture<T[]> implements AutoCloseable {
  /** A function that takes outputs. */
  interface Take {
    int take(long request, long outputs, int count, long error);
  }

  /** Makes the object of a handle in an array; null for none. */
  interface Make<T> {
    T at(Scratch scratch, long handles, int index);
  }

  /** A function that submits. */
  interface Submit {
    int submit(long session, long inputs, int count, long outputs, long run, long submit, long error);
  }

  private final Executor executor;
  private final CancelToken parent; // the caller's; nullable
  private final long token; // by which the request is ended; an old handle does nothing
  private final T[] slots;
  private final List<T> made = new ArrayList<>(); // those of the slots that were not given
  private final Take take;
  private final Make<T> make;

  Request(Executor executor, RunOptions options, T[] slots, Take take, Make<T> make) {
    this.executor = executor == null ? defaultExecutor() : executor;
    this.parent = options == null ? null : options.token();
    this.slots = slots;
    this.take = take;
    this.make = make;
    this.token = CancelToken.make();
  }

  /** Submits it. C holds it from then on, until `done` has returned. */
  void submit(Session session, RunOptions options, T[] inputs, Submit call) {
    Scratch scratch = Scratch.get();
    long mark = scratch.mark();
    long held = 0;
    boolean isSubmitted = false;
    try {
      if (parent != null) parent.handle();
      long from = scratch.handles(inputs);
      long to = scratch.handles(slots);
      long run = RunOptions.write(scratch, options, session.outputCount(), token);
      long submit = scratch.allocate(Layout.SubmitOptions.SIZE);
      Raw.submitOptionsInit(submit, Layout.SubmitOptions.SIZE);
      held = Native.hold(this);
      scratch.putLong(submit + Layout.SubmitOptions.DONE, Native.DONE);
      scratch.putLong(submit + Layout.SubmitOptions.USER, held);
      scratch.putLong(submit + Layout.SubmitOptions.RELEASE, Native.RELEASE);
      if (parent != null) parent.add(this);
      session.call((handle, error) -> call.submit(handle, from, inputs.length, to, run, submit, error));
      isSubmitted = true;
    } finally {
      if (!isSubmitted) {
        if (held != 0) Native.drop(held);
        endToken();
      }
      scratch.release(mark);
      Reference.reachabilityFence(inputs);
      RunOptions.fence(options);
    }
    whenComplete((outputs, failure) -> stop());
  }

  private void endToken() {
    if (parent != null) parent.remove(this);
    Raw.cancelRelease(token);
  }

  /** Asks the run to stop. A handle that has ended is an error, which does not matter here. */
  void stop() {
    Raw.cancelRequest(token);
  }

  /** Takes the outcome, on a thread of the library's, and has the executor complete the future with it. */
  void ended(long request) {
    EvenerException failure = null;
    Scratch scratch = Scratch.get();
    long mark = scratch.mark();
    try {
      long to = scratch.allocate(8L * slots.length);
      long error = scratch.error();
      int status = take.take(request, to, slots.length, error);
      if (status != Numbers.EVN_OK) failure = scratch.failure(status, error);
      for (int i = 0; i < slots.length && failure == null; i++) {
        T output = make.at(scratch, to, i);
        if (output == null) continue;
        slots[i] = output;
        made.add(output);
      }
    } finally {
      scratch.release(mark);
      endToken();
    }
    EvenerException outcome = failure;
    try {
      executor.execute(() -> finish(outcome));
    } catch (RejectedExecutionException isShut) {
      finish(outcome); // the library allows it here too, and nobody else would
    }
  }

  private void finish(EvenerException failure) {
    if (failure != null) {
      completeExceptionally(failure);
    } else if (!complete(slots)) {
      for (T output : made) output.close(); // it was ended before: nobody gets them
    }
  }

  /** Cancels the request where it has not ended; its outputs, where it has, belong to whoever got them. It may be called twice. */
  @Override
  public void close() {
    cancel(true);
  }
}

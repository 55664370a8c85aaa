package evener;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.function.Consumer;

/** What the glue calls, on whichever thread the library calls it. Nothing is thrown out of these methods: there is C below them. */
final class Callbacks {
  private Callbacks() {}

  private static ByteBuffer at(long address, int size) {
    return Native.bufferAt(address, size).order(ByteOrder.nativeOrder());
  }

  /** What nobody else would hear of. */
  private static void lost(Throwable thrown) {
    Thread thread = Thread.currentThread();
    thread.getUncaughtExceptionHandler().uncaughtException(thread, thrown);
  }

  static void log(Object user, long record) {
    try {
      @SuppressWarnings("unchecked")
      Consumer<LogRecord> sink = (Consumer<LogRecord>) user;
      sink.accept(recordAt(record));
    } catch (Throwable thrown) {
      lost(thrown);
    }
  }

  private static LogRecord recordAt(long address) {
    ByteBuffer record = at(address, Layout.LogRecord.SIZE);
    Map<String, String> fields = new LinkedHashMap<>();
    int count = record.getInt(Layout.LogRecord.FIELD_COUNT);
    long from = record.getLong(Layout.LogRecord.FIELDS);
    for (int i = 0; i < count; i++) {
      ByteBuffer field = at(from + (long) Layout.LogField.SIZE * i, Layout.LogField.SIZE);
      fields.put(Library.textAt(field.getLong(Layout.LogField.KEY)), Library.textAt(field.getLong(Layout.LogField.VALUE)));
    }
    return new LogRecord(
        LogLevel.of(record.getInt(Layout.LogRecord.LEVEL)),
        record.getLong(Layout.LogRecord.TIMESTAMP_NS),
        Library.textAt(record.getLong(Layout.LogRecord.MESSAGE)),
        Library.textAt(record.getLong(Layout.LogRecord.EVENT)),
        Library.textAt(record.getLong(Layout.LogRecord.DEVICE)),
        Library.textAt(record.getLong(Layout.LogRecord.NODE)),
        Collections.unmodifiableMap(fields));
  }

  static void done(Object user, long request) {
    Request<?> ended = (Request<?>) user;
    try {
      ended.ended(request);
    } catch (Throwable thrown) {
      ended.completeExceptionally(thrown);
    }
  }

  /** Gives whether to stop. */
  static int progress(Object user, long what, long done, long total) {
    Quantizer.Watch watch = (Quantizer.Watch) user;
    try {
      return watch.progress.update(Library.textAt(what), done, total) ? 0 : 1;
    } catch (Throwable thrown) {
      watch.thrown = thrown;
      return 1;
    }
  }

  static int infer(Object user, long node, long inputs, int inputCount, long outputs, int outputCount, long error) {
    TensorView.Scope scope = new TensorView.Scope();
    try {
      TensorSpec[] specs = ((Operator) user).infer(new Node(node, scope), TensorView.all(scope, inputs, inputCount, false), outputCount);
      if (specs == null || specs.length != outputCount) {
        throw EvenerException.argument("infer gave " + (specs == null ? "none" : specs.length) + " for " + outputCount + " outputs");
      }
      for (int i = 0; i < outputCount; i++) write(outputs + (long) Layout.TensorView.SIZE * i, specs[i]);
      return Numbers.EVN_OK;
    } catch (Throwable thrown) {
      return tell(thrown, error);
    } finally {
      scope.end();
    }
  }

  private static void write(long address, TensorSpec spec) {
    ByteBuffer view = at(address, Layout.TensorView.SIZE);
    view.putInt(Layout.TensorView.DTYPE, spec.dtype().value());
    if (!spec.hasRank()) {
      view.putInt(Layout.TensorView.RANK, Numbers.EVN_UNKNOWN_RANK);
      return;
    }
    if (spec.dims().length > Numbers.EVN_MAX_RANK) throw EvenerException.argument("infer gave a shape of rank " + spec.dims().length);
    view.putInt(Layout.TensorView.RANK, spec.dims().length);
    for (int i = 0; i < spec.dims().length; i++) view.putLong(Layout.TensorView.DIMS + 8 * i, spec.dims()[i]);
  }

  static int run(Object user, long node, long inputs, int inputCount, long outputs, int outputCount, long error) {
    TensorView.Scope scope = new TensorView.Scope();
    try {
      TensorView[] given = TensorView.all(scope, inputs, inputCount, false);
      ((Operator) user).run(new Node(node, scope), given, TensorView.all(scope, outputs, outputCount, true));
      return Numbers.EVN_OK;
    } catch (Throwable thrown) {
      return tell(thrown, error);
    } finally {
      scope.end();
    }
  }

  /** Sums over ranks: what is there is copied for the caller's function, which changes the copy, and copied back. */
  static int reduce(Object user, long data, long count, int dtype, long error) {
    Trainer.Watch watch = (Trainer.Watch) user;
    try {
      int size = Math.toIntExact(count);
      if (dtype == Numbers.EVN_DTYPE_FLOAT32) {
        float[] numbers = new float[size];
        Native.readFloats(data, numbers, size);
        watch.reduce.sum(numbers);
        Native.writeFloats(data, numbers, size);
      } else if (dtype == Numbers.EVN_DTYPE_FLOAT64) {
        double[] numbers = new double[size];
        Native.readDoubles(data, numbers, size);
        watch.reduce.sum(numbers);
        Native.writeDoubles(data, numbers, size);
      } else {
        throw EvenerException.argument("a sum of dtype " + dtype);
      }
      return Numbers.EVN_OK;
    } catch (Throwable thrown) {
      watch.thrown = thrown;
      return tell(thrown, error);
    }
  }

  /** Tells C of an exception: its text, cut at a whole character. */
  private static int tell(Throwable thrown, long error) {
    boolean isOurs = thrown instanceof EvenerException;
    int status = isOurs ? ((EvenerException) thrown).status().value() : Numbers.EVN_ERROR_INTERNAL;
    if (status == Numbers.EVN_OK || status < 0) status = Numbers.EVN_ERROR_INTERNAL;
    if (error == 0) return status;
    byte[] text = (isOurs ? ((EvenerException) thrown).detail() : thrown.toString()).replace('\0', ' ').getBytes(StandardCharsets.UTF_8);
    int size = Math.min(text.length, Layout.Error.MESSAGE_BYTES - 1);
    while (size > 0 && size < text.length && (text[size] & 0xc0) == 0x80) size--;
    ByteBuffer message = at(error + Layout.Error.MESSAGE, Layout.Error.MESSAGE_BYTES);
    message.put(0, text, 0, size);
    message.put(size, (byte) 0);
    return status;
  }
}

package evener;

import java.nio.file.Path;
import java.util.List;

/** How a model is quantized. Without anything: static, from the smallest to the largest value. */
public final class QuantizerOptions {
  /** Is told how much of a call is done. It must not call the quantizer. */
  public interface Progress {
    /**
     * Is told.
     *
     * @param what "calibrate", "guard", "verify", "quantize"
     * @param done how much of it
     * @param total of how much; 0: not known
     * @return whether to go on; false ends the call with {@link Status#CANCELLED}, and so does an exception, which is the cause of the call's
     */
    boolean update(String what, long done, long total);
  }

  private QuantizeMode mode = QuantizeMode.STATIC;
  private Calibration calibration = Calibration.MINMAX;
  private DType activation = DType.UNDEFINED; // the mode's own
  private double percentile;
  private int flags;
  private List<String> keep = List.of();
  private int weightBits;
  private int blockSize;
  private Progress progress;
  private byte[] data = {};
  private Path externalDirectory;
  private Deadline deadline = Deadline.NONE;

  /** Makes options that change nothing. */
  public QuantizerOptions() {}

  /**
   * Sets what is quantized.
   *
   * @param what static, dynamic, weights, float16, bfloat16
   * @return this
   */
  public QuantizerOptions mode(QuantizeMode what) {
    mode = what;
    return this;
  }

  /**
   * Sets how the range of an activation is chosen.
   *
   * @param how from what calibration has seen of it
   * @return this
   */
  public QuantizerOptions calibration(Calibration how) {
    calibration = how;
    return this;
  }

  /**
   * Sets how many elements stay with {@link Calibration#PERCENTILE}.
   *
   * @param percent 50 to 100; 0: 99.99
   * @return this
   */
  public QuantizerOptions percentile(double percent) {
    percentile = percent;
    return this;
  }

  /**
   * Sets the type of activations.
   *
   * @param dtype UINT8 (asymmetric) or INT8 (symmetric)
   * @return this
   */
  public QuantizerOptions activation(DType dtype) {
    activation = dtype;
    return this;
  }

  private QuantizerOptions flag(int flag) {
    flags |= flag;
    return this;
  }

  /**
   * Gives each weight one scale.
   *
   * @return this
   */
  public QuantizerOptions perTensor() {
    return flag(Numbers.EVN_QUANTIZE_PER_TENSOR);
  }

  /**
   * Uses com.microsoft's operators for weights alone and dynamic LSTMs.
   *
   * @return this
   */
  public QuantizerOptions contrib() {
    return flag(Numbers.EVN_QUANTIZE_CONTRIB);
  }

  /**
   * Has a file that is saved keep its larger constants in another beside it.
   *
   * @return this
   */
  public QuantizerOptions externalData() {
    return flag(Numbers.EVN_QUANTIZE_EXTERNAL_DATA);
  }

  /**
   * Writes operators on bytes where there are such.
   *
   * @return this
   */
  public QuantizerOptions qoperator() {
    return flag(Numbers.EVN_QUANTIZE_QOPERATOR);
  }

  /**
   * Balances ranges of channels between layers before calibration.
   *
   * @return this
   */
  public QuantizerOptions equalize() {
    return flag(Numbers.EVN_QUANTIZE_EQUALIZE);
  }

  /**
   * Moves half of what columns of an input are larger than others into weights (SmoothQuant).
   *
   * @return this
   */
  public QuantizerOptions smooth() {
    return flag(Numbers.EVN_QUANTIZE_SMOOTH);
  }

  /**
   * Puts the mean error of each channel over the last batch into its bias.
   *
   * @return this
   */
  public QuantizerOptions correctBias() {
    return flag(Numbers.EVN_QUANTIZE_CORRECT_BIAS);
  }

  /**
   * Sets which nodes stay float32.
   *
   * @param nodes globs of their names, or "type:Softmax"
   * @return this
   */
  public QuantizerOptions keep(String... nodes) {
    keep = List.of(nodes);
    return this;
  }

  /**
   * Sets the form of weights with {@link QuantizeMode#WEIGHTS}.
   *
   * @param bits 8 or 4; 0: 8
   * @param block so many elements of a column share a scale; 0: 32
   * @return this
   */
  public QuantizerOptions weights(int bits, int block) {
    weightBits = bits;
    blockSize = block;
    return this;
  }

  /**
   * Has a function told how much of a call is done.
   *
   * @param told the function
   * @return this
   */
  public QuantizerOptions progress(Progress told) {
    progress = told;
    return this;
  }

  /**
   * Takes the model from memory, where there is no path.
   *
   * @param model the file's bytes
   * @param folder of its weights in other files; null: there are none
   * @return this
   */
  public QuantizerOptions data(byte[] model, Path folder) {
    data = model;
    externalDirectory = folder;
    return this;
  }

  /**
   * Says when all calls of the quantizer end.
   *
   * @param when the time and the token
   * @return this
   */
  public QuantizerOptions deadline(Deadline when) {
    deadline = when;
    return this;
  }

  Progress progress() {
    return progress;
  }

  Deadline deadline() {
    return deadline;
  }

  /** Writes them for C. `held` is what C is to hand to the progress; 0: none. */
  long write(Scratch scratch, long held) {
    long made = scratch.allocate(Layout.QuantizerOptions.SIZE);
    Raw.quantizerOptionsInit(made, Layout.QuantizerOptions.SIZE);
    scratch.putInt(made + Layout.QuantizerOptions.MODE, mode.value());
    scratch.putInt(made + Layout.QuantizerOptions.CALIBRATION, calibration.value());
    scratch.putInt(made + Layout.QuantizerOptions.ACTIVATION, activation.value());
    scratch.putDouble(made + Layout.QuantizerOptions.PERCENTILE, percentile);
    scratch.putInt(made + Layout.QuantizerOptions.FLAGS, flags);
    scratch.putLong(made + Layout.QuantizerOptions.KEEP, scratch.texts(keep));
    scratch.putInt(made + Layout.QuantizerOptions.KEEP_COUNT, keep.size());
    scratch.putLong(made + Layout.QuantizerOptions.DATA, scratch.bytes(data));
    scratch.putLong(made + Layout.QuantizerOptions.SIZE_, data.length);
    if (externalDirectory != null) scratch.putLong(made + Layout.QuantizerOptions.EXTERNAL_DIR, scratch.text(externalDirectory.toString()));
    scratch.putInt(made + Layout.QuantizerOptions.WEIGHT_BITS, weightBits);
    scratch.putInt(made + Layout.QuantizerOptions.BLOCK_SIZE, blockSize);
    scratch.putLong(made + Layout.QuantizerOptions.CANCEL, CancelToken.handleOf(deadline.token()));
    scratch.putLong(made + Layout.QuantizerOptions.DEADLINE_NS, deadline.nanoseconds());
    if (held != 0) {
      scratch.putLong(made + Layout.QuantizerOptions.PROGRESS, Native.PROGRESS);
      scratch.putLong(made + Layout.QuantizerOptions.PROGRESS_USER, held);
      scratch.putLong(made + Layout.QuantizerOptions.PROGRESS_RELEASE, Native.RELEASE);
    }
    return made;
  }
}

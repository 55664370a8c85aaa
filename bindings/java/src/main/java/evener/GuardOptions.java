package evener;

/**
 * What {@link Quantizer#guard} looks at.
 *
 * @param error whether it looks at errors
 * @param speed whether it looks at times
 * @param minCosine of each output with the float32 model's: up to 1; 0: 0.99
 * @param minLayerSqnrDb signal to quantization noise of each layer alone; 0: 10
 */
public record GuardOptions(boolean error, boolean speed, double minCosine, double minLayerSqnrDb) {
  /** Makes options that look at both, with the library's thresholds. */
  public GuardOptions() {
    this(true, true, 0, 0);
  }
}

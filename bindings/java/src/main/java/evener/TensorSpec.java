package evener;

/**
 * What is known of a tensor before a run.
 *
 * @param dtype of its elements
 * @param hasRank false: the rank is not known yet
 * @param dims -1: not known yet; the array is the record's own
 */
public record TensorSpec(DType dtype, boolean hasRank, long[] dims) {
  /**
   * Makes one of a known rank.
   *
   * @param dtype of the elements
   * @param dims -1: not known yet
   */
  public TensorSpec(DType dtype, long... dims) {
    this(dtype, true, dims);
  }
}

package evener;

import java.util.Arrays;

/**
 * What a tensor is.
 *
 * @param dtype of its elements
 * @param dims its shape; the array is the record's own
 * @param sizeBytes dense, row-major
 * @param device name of the device that holds it
 * @param isReadOnly it can be no output and not be written
 * @param isPinned in memory that the device's driver and the host share
 */
public record TensorInfo(DType dtype, long[] dims, long sizeBytes, String device, boolean isReadOnly, boolean isPinned) {
  /**
   * Gives the number of elements.
   *
   * @return the product of the dims
   */
  public long count() {
    long count = 1;
    for (long dim : dims) count = Math.multiplyExact(count, dim);
    return count;
  }

  @Override
  public String toString() {
    return dtype + Arrays.toString(dims) + " on " + device;
  }
}

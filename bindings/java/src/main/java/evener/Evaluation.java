package evener;

import java.util.OptionalDouble;

/**
 * How good a model is on a batch.
 *
 * @param loss the mean of the batch
 * @param correct of the losses of classes and of BCE: how many are right
 * @param count of how many; 0 of other losses
 */
public record Evaluation(double loss, long correct, long count) {
  /**
   * Gives the share that is right.
   *
   * @return from 0 to 1; empty where the loss has none
   */
  public OptionalDouble accuracy() {
    return count == 0 ? OptionalDouble.empty() : OptionalDouble.of((double) correct / count);
  }
}

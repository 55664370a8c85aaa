package evener;

/**
 * An output of the model that is an input of the next run.
 *
 * @param output its name
 * @param input its name
 * @param capacity 0: it has the dims that the input has in each run. More: the most positions on the axis on which it grows
 */
public record StatePair(String output, String input, long capacity) {
  /**
   * Makes a pair of the same dims in each run.
   *
   * @param output its name
   * @param input its name
   */
  public StatePair(String output, String input) {
    this(output, input, 0);
  }
}

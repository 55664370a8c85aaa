package evener;

/**
 * What a custom operator does. Its methods are called from any thread, also several at a time, and must not call the library but through what they are
 * given. What they throw becomes the error of the run, with its text: with the status of an {@link EvenerException}, else {@link Status#INTERNAL}.
 */
public interface Operator {
  /**
   * Says what the outputs are. While a model loads ranks and dims of inputs may not be known, and those of outputs may be left so; before a run all are.
   * It must depend on nothing but its arguments.
   *
   * @param node the node
   * @param inputs null: not given
   * @param outputs how many there are
   * @return one for each output
   */
  TensorSpec[] infer(Node node, TensorView[] inputs, int outputs);

  /**
   * Computes the outputs' elements.
   *
   * @param node the node
   * @param inputs null: not given
   * @param outputs null: not wanted
   */
  void run(Node node, TensorView[] inputs, TensorView[] outputs);
}

package evener;

import java.util.List;

/**
 * Parameters that are treated otherwise than the rest; the first group with a name that matches counts.
 *
 * @param names globs of names of initializers
 * @param rateFactor times the learning rate; TrainerOptions.DEFAULT: 1
 * @param weightDecay the group's own; TrainerOptions.DEFAULT: that of the options
 */
public record ParameterGroup(List<String> names, double rateFactor, double weightDecay) {
  /**
   * Keeps a copy of the names.
   *
   * @param names globs of names of initializers
   * @param rateFactor times the learning rate; TrainerOptions.DEFAULT: 1
   * @param weightDecay the group's own; TrainerOptions.DEFAULT: that of the options
   */
  public ParameterGroup {
    names = List.copyOf(names);
  }
}

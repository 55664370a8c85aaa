package evener;

import java.util.Map;

/** How a state is made. */
public final class StateOptions {
  private int flags;
  private Map<String, long[]> dims = Map.of();

  /** Makes options that change nothing. */
  public StateOptions() {}

  /**
   * Takes memory for positions page by page, and not all at once.
   *
   * @return this
   */
  public StateOptions onDemand() {
    flags |= Numbers.EVN_STATE_ON_DEMAND;
    return this;
  }

  /**
   * Stores pages of float32 values as float16.
   *
   * @return this
   */
  public StateOptions float16() {
    flags |= Numbers.EVN_STATE_FLOAT16;
    return this;
  }

  /**
   * Stores pages of floating-point values as 8 bits with a scale for each row.
   *
   * @return this
   */
  public StateOptions int8() {
    flags |= Numbers.EVN_STATE_INT8;
    return this;
  }

  /**
   * Says the dims of inputs which the model leaves open; the axis on which a pair grows is 0.
   *
   * @param byInput dims by the inputs' names
   * @return this
   */
  public StateOptions dims(Map<String, long[]> byInput) {
    dims = Map.copyOf(byInput);
    return this;
  }

  long write(Scratch scratch) {
    long made = scratch.allocate(Layout.StateOptions.SIZE);
    Raw.stateOptionsInit(made, Layout.StateOptions.SIZE);
    scratch.putInt(made + Layout.StateOptions.FLAGS, flags);
    scratch.putLong(made + Layout.StateOptions.DIMS, State.shapes(scratch, dims));
    scratch.putInt(made + Layout.StateOptions.DIM_COUNT, dims.size());
    return made;
  }
}

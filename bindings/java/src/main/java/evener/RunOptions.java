package evener;

import java.lang.ref.Reference;
import java.time.Duration;

/** How a run is made. Its values are read when the run begins or is submitted; one object may serve many runs, one after the other. */
public final class RunOptions {
  private boolean allowCopies;
  private long timeout;
  private long deadline;
  private long seed;
  private CancelToken cancel;
  private int priority;
  private boolean outputsOnDevice;
  private State state;
  private int[] skipped = {};

  /** Makes options that change nothing. */
  public RunOptions() {}

  /**
   * Says whether inputs and outputs that lie on another device than the plan has them are copied.
   *
   * @param allowed false: that is an error, which names both devices
   * @return this
   */
  public RunOptions allowCopies(boolean allowed) {
    allowCopies = allowed;
    return this;
  }

  /**
   * Ends the run so long after its begin, or after its submission, with {@link Status#TIMEOUT}.
   *
   * @param time null: none but the configuration's
   * @return this
   */
  public RunOptions timeout(Duration time) {
    timeout = CancelToken.nanoseconds(time);
    return this;
  }

  /**
   * Ends the run so long after now, with {@link Status#TIMEOUT}; one that begins later ends at once.
   *
   * @param time null: none
   * @return this
   */
  public RunOptions deadlineAfter(Duration time) {
    deadline = time == null ? 0 : Deadline.timeAfter(time);
    return this;
  }

  /**
   * Ends the run at a time, with {@link Status#TIMEOUT}.
   *
   * @param nanoseconds of {@link Evener#now}; 0: none
   * @return this
   */
  public RunOptions deadline(long nanoseconds) {
    deadline = nanoseconds;
    return this;
  }

  /**
   * Sets what operators that draw random numbers begin with: one gives the same bits in each run.
   *
   * @param with any number
   * @return this
   */
  public RunOptions seed(long with) {
    seed = with;
    return this;
  }

  /**
   * Ends the run when a token is cancelled, with {@link Status#CANCELLED}.
   *
   * @param token null: none
   * @return this
   */
  public RunOptions cancel(CancelToken token) {
    cancel = token;
    return this;
  }

  /**
   * Sets the priority: while a run computes, those of lower ones wait.
   *
   * @param step -7 to 7
   * @return this
   */
  public RunOptions priority(int step) {
    priority = step;
    return this;
  }

  /**
   * Says where new outputs lie.
   *
   * @param there on the device where the plan makes them, and not on the CPU
   * @return this
   */
  public RunOptions outputsOnDevice(boolean there) {
    outputsOnDevice = there;
    return this;
  }

  /**
   * Has a state give and take the inputs and outputs of its pairs, whose slots are null.
   *
   * @param of the session; null: none
   * @return this
   */
  public RunOptions state(State of) {
    state = of;
    return this;
  }

  /**
   * Leaves outputs out: they are not computed where nothing else needs them, and their slots stay null.
   *
   * @param outputs their places
   * @return this
   */
  public RunOptions skip(int... outputs) {
    skipped = outputs.clone();
    return this;
  }

  CancelToken token() {
    return cancel;
  }

  /** Writes them for C. `token` stands in for the one that was given, where it is not 0. */
  static long write(Scratch scratch, RunOptions given, int outputs, long token) {
    if (given == null && token == 0) return 0;
    long made = scratch.allocate(Layout.RunOptions.SIZE);
    Raw.runOptionsInit(made, Layout.RunOptions.SIZE);
    scratch.putLong(made + Layout.RunOptions.CANCEL, token);
    if (given == null) return made;
    if (token == 0) scratch.putLong(made + Layout.RunOptions.CANCEL, CancelToken.handleOf(given.cancel));
    scratch.putInt(made + Layout.RunOptions.ALLOW_COPIES, given.allowCopies ? 1 : 0);
    scratch.putLong(made + Layout.RunOptions.TIMEOUT_NS, given.timeout);
    scratch.putLong(made + Layout.RunOptions.DEADLINE_NS, given.deadline);
    scratch.putLong(made + Layout.RunOptions.RANDOM_SEED, given.seed);
    scratch.putInt(made + Layout.RunOptions.PRIORITY, given.priority);
    scratch.putInt(made + Layout.RunOptions.FLAGS, given.outputsOnDevice ? Numbers.EVN_RUN_OUTPUTS_ON_DEVICE : 0);
    if (given.state != null) scratch.putLong(made + Layout.RunOptions.STATE, given.state.handle());
    if (given.skipped.length != 0) scratch.putLong(made + Layout.RunOptions.SKIPPED_OUTPUTS, given.skips(scratch, outputs));
    return made;
  }

  private long skips(Scratch scratch, int outputs) {
    long made = scratch.allocate(outputs);
    for (int index : skipped) {
      if (index < 0 || index >= outputs) throw EvenerException.argument("there is no output " + index + " to skip: the model has " + outputs);
      scratch.putByte(made + index, (byte) 1);
    }
    return made;
  }

  /** Keeps what it names until a call is over. */
  static void fence(RunOptions options) {
    if (options == null) return;
    Reference.reachabilityFence(options.cancel);
    Reference.reachabilityFence(options.state);
  }
}

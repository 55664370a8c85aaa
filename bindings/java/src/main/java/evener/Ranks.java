package evener;

import java.time.Duration;

/** One of several processes that train a model together, each with its own part of every batch: {@code new Ranks(0, 2).reduce(sums)}. */
public final class Ranks {
  /**
   * All-reduce by the host: numbers become their sums over all ranks, with the same bits in all of them. It is called on any thread, by one at a time, and must
   * not call the trainer. What it throws ends the trainer's call, and is the cause of its exception.
   */
  public interface Reduce {
    /**
     * Sums gradients and parameters.
     *
     * @param numbers which it changes; a copy, which is copied back
     */
    void sum(float[] numbers);

    /**
     * Sums losses, counts and checksums.
     *
     * @param numbers which it changes; a copy, which is copied back
     */
    void sum(double[] numbers);
  }

  private final int rank;
  private final int count;
  private int flags;
  private Reduce reduce;
  private String collective;
  private String store;
  private Duration timeout = Duration.ZERO;
  private long bucketBytes;

  /**
   * Says which of the processes this is.
   *
   * @param rank from 0 on; rank 0's parameters are those that all begin with
   * @param count how many there are; 0: as the collective says, or 1
   */
  public Ranks(int rank, int count) {
    this.rank = rank;
    this.count = count;
  }

  /**
   * Has the host sum.
   *
   * @param sums the sums; null: none
   * @return this
   */
  public Ranks reduce(Reduce sums) {
    reduce = sums;
    return this;
  }

  /**
   * Has a module sum.
   *
   * @param name "mpi" or "gloo"; null: none
   * @param folder of "gloo": one that all ranks see, of this run alone; null: none
   * @return this
   */
  public Ranks collective(String name, String folder) {
    collective = name;
    store = folder;
    return this;
  }

  /**
   * Sets how long a rank waits for the others.
   *
   * @param time up to 49 days; zero: a minute
   * @return this
   */
  public Ranks timeout(Duration time) {
    timeout = time;
    return this;
  }

  /**
   * Sets how much is summed at once.
   *
   * @param bytes 0: 4 MiB
   * @return this
   */
  public Ranks bucketBytes(long bytes) {
    bucketBytes = bytes;
    return this;
  }

  /**
   * Has ranks compare checksums of their parameters after each step.
   *
   * @return this
   */
  public Ranks check() {
    flags |= Numbers.EVN_TRAIN_CHECK_RANKS;
    return this;
  }

  /**
   * Has BatchNormalization normalize by the batches of all ranks together.
   *
   * @return this
   */
  public Ranks syncNorm() {
    flags |= Numbers.EVN_TRAIN_SYNC_NORM;
    return this;
  }

  Reduce reduce() {
    return reduce;
  }

  int flags() {
    return flags;
  }

  private int milliseconds() {
    long time = timeout.isNegative() ? -1 : timeout.getSeconds() > 1L << 32 ? 1L << 32 : timeout.plusNanos(999_999).toMillis();
    if (time < 0 || time >= 1L << 32) throw EvenerException.argument("the timeout of ranks is " + timeout);
    return (int) time;
  }

  /** Writes them for C. `held` is what C is to hand to the sums; 0: none. */
  void write(Scratch scratch, long options, long held) {
    scratch.putInt(options + Layout.TrainerOptions.RANK, (int) TrainerOptions.natural("the rank", rank));
    scratch.putInt(options + Layout.TrainerOptions.RANK_COUNT, (int) TrainerOptions.natural("the number of ranks", count));
    scratch.putInt(options + Layout.TrainerOptions.COLLECTIVE_TIMEOUT_MS, milliseconds());
    scratch.putLong(options + Layout.TrainerOptions.COLLECTIVE, scratch.optional(collective));
    scratch.putLong(options + Layout.TrainerOptions.COLLECTIVE_STORE, scratch.optional(store));
    scratch.putLong(options + Layout.TrainerOptions.BUCKET_BYTES, TrainerOptions.natural("bucketBytes", bucketBytes));
    if (held != 0) {
      scratch.putLong(options + Layout.TrainerOptions.REDUCE, Native.REDUCE);
      scratch.putLong(options + Layout.TrainerOptions.REDUCE_CONTEXT, held);
    }
  }
}

package evener;

import java.time.Duration;

/** How requests of a session are joined to batches. */
public final class Batching {
  private int maxBatch = 8;
  private long maxDelay;
  private String mask;
  private long[] buckets = {};

  /** Makes it for batches of 8 rows at most, of requests that wait already. */
  public Batching() {}

  /**
   * Sets how many rows a batch has at most.
   *
   * @param rows 2 to 65536
   * @return this
   */
  public Batching maxBatch(int rows) {
    maxBatch = rows;
    return this;
  }

  /**
   * Sets how long the first request of a batch waits for others.
   *
   * @param time at most
   * @return this
   */
  public Batching maxDelay(Duration time) {
    maxDelay = time.isZero() ? 0 : CancelToken.nanoseconds(time);
    return this;
  }

  /**
   * Has requests of different lengths joined, which are filled up with zeros.
   *
   * @param input the model's input of 1 for what counts and 0 for padding
   * @param lengths to which they are filled up, in rising order
   * @return this
   */
  public Batching mask(String input, long... lengths) {
    mask = input;
    buckets = lengths.clone();
    return this;
  }

  long write(Scratch scratch) {
    long made = scratch.allocate(Layout.BatchingOptions.SIZE);
    Raw.batchingOptionsInit(made, Layout.BatchingOptions.SIZE);
    scratch.putInt(made + Layout.BatchingOptions.MAX_BATCH, maxBatch);
    scratch.putLong(made + Layout.BatchingOptions.MAX_DELAY_NS, maxDelay);
    scratch.putLong(made + Layout.BatchingOptions.MASK, scratch.optional(mask));
    scratch.putLong(made + Layout.BatchingOptions.BUCKETS, scratch.longs(buckets));
    scratch.putInt(made + Layout.BatchingOptions.BUCKET_COUNT, buckets.length);
    return made;
  }
}

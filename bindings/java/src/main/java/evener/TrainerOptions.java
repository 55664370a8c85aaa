package evener;

import java.nio.file.Path;
import java.time.Duration;
import java.util.List;

/** How a model is trained. Zeros, and what is not set, are the library's defaults: SGD with the cross-entropy of classes. */
public final class TrainerOptions {
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
     * Sums losses and counts.
     *
     * @param numbers which it changes; a copy, which is copied back
     */
    void sum(double[] numbers);
  }

  private Loss loss = Loss.SOFTMAX_CROSS_ENTROPY;
  private String output;
  private List<String> trainable = List.of();
  private List<String> frozen = List.of();
  private Precision precision = Precision.DEFAULT;
  private Optimizer optimizer = Optimizer.SGD;
  private double learningRate;
  private double momentum;
  private double dampening;
  private double weightDecay;
  private double betasFirst;
  private double betasSecond;
  private double epsilon;
  private double alpha;
  private double rateDecay;
  private Schedule schedule = Schedule.CONSTANT;
  private long warmupSteps;
  private long scheduleSteps;
  private double scheduleFactor;
  private double leastRate;
  private double plateauThreshold;
  private int plateauPatience;
  private double clipNorm;
  private double clipValue;
  private int accumulate;
  private double lossScale;
  private long seed;
  private long memoryLimit;
  private double pruneShare;
  private long pruneBegin;
  private long pruneSteps;
  private String device;
  private List<String> replicas = List.of();
  private int ranksRank;
  private int ranksCount;
  private String collectiveName;
  private String collectiveStore;
  private long bucketBytes;
  private int flags;
  private List<ParameterGroup> groups = List.of();
  private Duration collectiveTimeout = Duration.ZERO;
  private Reduce reduce;
  private byte[] data = {};
  private Path externalDirectory;
  private CancelToken token;

  /** Makes options that change nothing. */
  public TrainerOptions() {}

  /**
   * Sets what is made small.
   *
   * @param what cross-entropy of classes, of bits, a distance, or the output itself
   * @return this
   */
  public TrainerOptions loss(Loss what) {
    loss = what;
    return this;
  }

  /**
   * Sets the output that the loss is of.
   *
   * @param name its name; null: the first
   * @return this
   */
  public TrainerOptions output(String name) {
    output = name;
    return this;
  }

  /**
   * Sets which initializers learn.
   *
   * @param names globs of their names; none: all that can
   * @return this
   */
  public TrainerOptions trainable(String... names) {
    trainable = List.of(names);
    return this;
  }

  /**
   * Sets which initializers stay.
   *
   * @param names globs of their names; also nodes of BatchNormalization, which then normalize by their statistics
   * @return this
   */
  public TrainerOptions frozen(String... names) {
    frozen = List.of(names);
    return this;
  }

  /**
   * Sets the precision of products and convolutions in both passes.
   *
   * @param of DEFAULT, FP32, BF16 or FP16
   * @return this
   */
  public TrainerOptions precision(Precision of) {
    precision = of;
    return this;
  }

  /**
   * Sets how parameters move.
   *
   * @param how formulas and defaults are those of torch.optim
   * @return this
   */
  public TrainerOptions optimizer(Optimizer how) {
    optimizer = how;
    return this;
  }

  /**
   * Sets the learning rate.
   *
   * @param rate 0: 0.01, and 0.001 of Adam and AdamW
   * @return this
   */
  public TrainerOptions learningRate(double rate) {
    learningRate = rate;
    return this;
  }

  /**
   * Sets the momentum of SGD and RMSprop.
   *
   * @param momentum 0: none
   * @return this
   */
  public TrainerOptions momentum(double momentum) {
    this.momentum = momentum;
    return this;
  }

  /**
   * Sets the dampening of SGD.
   *
   * @param dampening 0 to 1
   * @return this
   */
  public TrainerOptions dampening(double dampening) {
    this.dampening = dampening;
    return this;
  }

  /**
   * Sets the weight decay.
   *
   * @param decay 0: none
   * @return this
   */
  public TrainerOptions weightDecay(double decay) {
    weightDecay = decay;
    return this;
  }

  /**
   * Sets the betas of Adam and AdamW.
   *
   * @param first 0: 0.9
   * @param second 0: 0.999
   * @return this
   */
  public TrainerOptions betas(double first, double second) {
    betasFirst = first;
    betasSecond = second;
    return this;
  }

  /**
   * Sets what is added to divisors.
   *
   * @param epsilon 0: 1e-8, and 1e-10 of Adagrad
   * @return this
   */
  public TrainerOptions epsilon(double epsilon) {
    this.epsilon = epsilon;
    return this;
  }

  /**
   * Sets the smoothing of RMSprop.
   *
   * @param alpha 0: 0.99
   * @return this
   */
  public TrainerOptions alpha(double alpha) {
    this.alpha = alpha;
    return this;
  }

  /**
   * Sets the decay of the rate of Adagrad.
   *
   * @param decay 0: none
   * @return this
   */
  public TrainerOptions rateDecay(double decay) {
    rateDecay = decay;
    return this;
  }

  /**
   * Sets how the learning rate goes on.
   *
   * @param how after the warm-up
   * @return this
   */
  public TrainerOptions schedule(Schedule how) {
    schedule = how;
    return this;
  }

  /**
   * Sets a linear warm-up.
   *
   * @param steps how long
   * @return this
   */
  public TrainerOptions warmupSteps(long steps) {
    warmupSteps = steps;
    return this;
  }

  /**
   * Sets the steps of {@link Schedule#STEP} and {@link Schedule#COSINE}.
   *
   * @param steps how many
   * @return this
   */
  public TrainerOptions scheduleSteps(long steps) {
    scheduleSteps = steps;
    return this;
  }

  /**
   * Sets what a schedule multiplies the rate by.
   *
   * @param factor 0: 0.1
   * @return this
   */
  public TrainerOptions scheduleFactor(double factor) {
    scheduleFactor = factor;
    return this;
  }

  /**
   * Sets the rate below which no schedule goes.
   *
   * @param rate the rate
   * @return this
   */
  public TrainerOptions leastRate(double rate) {
    leastRate = rate;
    return this;
  }

  /**
   * Sets when {@link Schedule#PLATEAU} lowers the rate.
   *
   * @param threshold the share by which the metric has to fall; 0: 1e-4
   * @param patience calls without that; 0: 10
   * @return this
   */
  public TrainerOptions plateau(double threshold, int patience) {
    plateauThreshold = threshold;
    plateauPatience = patience;
    return this;
  }

  /**
   * Bounds the norm of all gradients together.
   *
   * @param norm 0: no
   * @return this
   */
  public TrainerOptions clipNorm(double norm) {
    clipNorm = norm;
    return this;
  }

  /**
   * Bounds each element of gradients.
   *
   * @param value 0: no
   * @return this
   */
  public TrainerOptions clipValue(double value) {
    clipValue = value;
    return this;
  }

  /**
   * Has the mean gradient of several steps move the parameters once.
   *
   * @param steps how many; 0: 1
   * @return this
   */
  public TrainerOptions accumulate(int steps) {
    accumulate = steps;
    return this;
  }

  /**
   * Sets what the loss is multiplied by before gradients are made.
   *
   * @param scale 0: as the precision needs it
   * @return this
   */
  public TrainerOptions lossScale(double scale) {
    lossScale = scale;
    return this;
  }

  /**
   * Sets the seed of Dropout.
   *
   * @param seed any number
   * @return this
   */
  public TrainerOptions seed(long seed) {
    this.seed = seed;
    return this;
  }

  /**
   * Bounds the activations that a step keeps; what does not fit is computed again.
   *
   * @param bytes 0: no limit
   * @return this
   */
  public TrainerOptions memoryLimit(long bytes) {
    memoryLimit = bytes;
    return this;
  }

  /**
   * Has channels of convolutions leave the model.
   *
   * @param share of all channels, at the end
   * @param begin steps before the first
   * @param steps over how many steps the share grows
   * @return this
   */
  public TrainerOptions prune(double share, long begin, long steps) {
    pruneShare = share;
    pruneBegin = begin;
    pruneSteps = steps;
    return this;
  }

  /**
   * Sets where it is trained.
   *
   * @param name a device; null: as the configuration says
   * @return this
   */
  public TrainerOptions device(String name) {
    device = name;
    return this;
  }

  /**
   * Sets devices that share each batch.
   *
   * @param devices of this runtime; none: the device alone
   * @return this
   */
  public TrainerOptions replicas(String... devices) {
    replicas = List.of(devices);
    return this;
  }

  /**
   * Says which of several processes this is.
   *
   * @param rank from 0 on
   * @param count how many there are; 0: as the collective says, or 1
   * @return this
   */
  public TrainerOptions ranks(int rank, int count) {
    ranksRank = rank;
    ranksCount = count;
    return this;
  }

  /**
   * Has a module sum over ranks.
   *
   * @param name "mpi" or "gloo"; null: none
   * @param store of "gloo": a folder that all ranks see, of this run alone; null: none
   * @return this
   */
  public TrainerOptions collective(String name, String store) {
    collectiveName = name;
    collectiveStore = store;
    return this;
  }

  /**
   * Sets how much is summed over ranks at once.
   *
   * @param bytes 0: 4 MiB
   * @return this
   */
  public TrainerOptions bucketBytes(long bytes) {
    bucketBytes = bytes;
    return this;
  }

  /**
   * Uses Nesterov's momentum, of SGD.
   *
   * @return this
   */
  public TrainerOptions nesterov() {
    flags |= Numbers.EVN_TRAIN_NESTEROV;
    return this;
  }

  /**
   * Centers RMSprop.
   *
   * @return this
   */
  public TrainerOptions centered() {
    flags |= Numbers.EVN_TRAIN_CENTERED;
    return this;
  }

  /**
   * Has ranks compare checksums of their parameters after each step.
   *
   * @return this
   */
  public TrainerOptions checkRanks() {
    flags |= Numbers.EVN_TRAIN_CHECK_RANKS;
    return this;
  }

  /**
   * Has BatchNormalization normalize by the batches of all ranks together.
   *
   * @return this
   */
  public TrainerOptions syncNorm() {
    flags |= Numbers.EVN_TRAIN_SYNC_NORM;
    return this;
  }

  /**
   * Sets parameters that are treated otherwise than the rest.
   *
   * @param groups of which the first with a name that matches counts
   * @return this
   */
  public TrainerOptions groups(ParameterGroup... groups) {
    this.groups = List.of(groups);
    return this;
  }

  /**
   * Sets how long a rank waits for the others.
   *
   * @param time up to 49 days; zero: a minute
   * @return this
   */
  public TrainerOptions collectiveTimeout(Duration time) {
    collectiveTimeout = time;
    return this;
  }

  /**
   * Has the host sum over ranks.
   *
   * @param sums the sums; null: none
   * @return this
   */
  public TrainerOptions reduce(Reduce sums) {
    reduce = sums;
    return this;
  }

  /**
   * Takes the model from memory, where there is no path.
   *
   * @param model the file's bytes
   * @param folder of its weights in other files; null: there are none
   * @return this
   */
  public TrainerOptions data(byte[] model, Path folder) {
    data = model;
    externalDirectory = folder;
    return this;
  }

  /**
   * Ends the trainer's steps and evaluations, for good, once a token is cancelled.
   *
   * @param token the token; null: none
   * @return this
   */
  public TrainerOptions cancel(CancelToken token) {
    this.token = token;
    return this;
  }

  Reduce reduce() {
    return reduce;
  }

  CancelToken token() {
    return token;
  }

  private static long natural(String what, long number) {
    if (number < 0) throw EvenerException.argument(what + " is " + number);
    return number;
  }

  private int timeout() {
    long milliseconds = collectiveTimeout.isNegative() ? -1 : collectiveTimeout.getSeconds() > 1L << 32 ? 1L << 32 : collectiveTimeout.toMillis();
    if (milliseconds < 0 || milliseconds >= 1L << 32) throw EvenerException.argument("collectiveTimeout is " + collectiveTimeout);
    return (int) milliseconds;
  }

  private static void names(Scratch scratch, List<String> names, long at, long count) {
    scratch.putLong(at, scratch.texts(names));
    scratch.putInt(count, names.size());
  }

  /** Writes them for C. `held` is what C is to hand to the sums; 0: none. */
  long write(Scratch scratch, long held) {
    long made = scratch.allocate(Layout.TrainerOptions.SIZE);
    Raw.trainerOptionsInit(made, Layout.TrainerOptions.SIZE);
    scratch.putInt(made + Layout.TrainerOptions.FLAGS, flags);
    scratch.putInt(made + Layout.TrainerOptions.LOSS, loss.value());
    scratch.putLong(made + Layout.TrainerOptions.OUTPUT, scratch.optional(output));
    names(scratch, trainable, made + Layout.TrainerOptions.TRAINABLE, made + Layout.TrainerOptions.TRAINABLE_COUNT);
    names(scratch, frozen, made + Layout.TrainerOptions.FROZEN, made + Layout.TrainerOptions.FROZEN_COUNT);
    scratch.putInt(made + Layout.TrainerOptions.PRECISION, precision.value());
    scratch.putInt(made + Layout.TrainerOptions.OPTIMIZER, optimizer.value());
    scratch.putDouble(made + Layout.TrainerOptions.LEARNING_RATE, learningRate);
    scratch.putDouble(made + Layout.TrainerOptions.MOMENTUM, momentum);
    scratch.putDouble(made + Layout.TrainerOptions.DAMPENING, dampening);
    scratch.putDouble(made + Layout.TrainerOptions.WEIGHT_DECAY, weightDecay);
    scratch.putDouble(made + Layout.TrainerOptions.BETA1, betasFirst);
    scratch.putDouble(made + Layout.TrainerOptions.BETA2, betasSecond);
    scratch.putDouble(made + Layout.TrainerOptions.EPSILON, epsilon);
    scratch.putDouble(made + Layout.TrainerOptions.ALPHA, alpha);
    scratch.putDouble(made + Layout.TrainerOptions.RATE_DECAY, rateDecay);
    scratch.putInt(made + Layout.TrainerOptions.SCHEDULE, schedule.value());
    scratch.putLong(made + Layout.TrainerOptions.WARMUP_STEPS, natural("warmupSteps", warmupSteps));
    scratch.putLong(made + Layout.TrainerOptions.SCHEDULE_STEPS, natural("scheduleSteps", scheduleSteps));
    scratch.putDouble(made + Layout.TrainerOptions.SCHEDULE_FACTOR, scheduleFactor);
    scratch.putDouble(made + Layout.TrainerOptions.LEAST_RATE, leastRate);
    scratch.putDouble(made + Layout.TrainerOptions.PLATEAU_THRESHOLD, plateauThreshold);
    scratch.putInt(made + Layout.TrainerOptions.PLATEAU_PATIENCE, (int) natural("plateauPatience", plateauPatience));
    scratch.putDouble(made + Layout.TrainerOptions.CLIP_NORM, clipNorm);
    scratch.putDouble(made + Layout.TrainerOptions.CLIP_VALUE, clipValue);
    scratch.putInt(made + Layout.TrainerOptions.ACCUMULATE, (int) natural("accumulate", accumulate));
    scratch.putDouble(made + Layout.TrainerOptions.LOSS_SCALE, lossScale);
    scratch.putLong(made + Layout.TrainerOptions.SEED, seed);
    scratch.putLong(made + Layout.TrainerOptions.MEMORY_LIMIT, natural("memoryLimit", memoryLimit));
    scratch.putDouble(made + Layout.TrainerOptions.PRUNE_SHARE, pruneShare);
    scratch.putLong(made + Layout.TrainerOptions.PRUNE_BEGIN, natural("pruneBegin", pruneBegin));
    scratch.putLong(made + Layout.TrainerOptions.PRUNE_STEPS, natural("pruneSteps", pruneSteps));
    scratch.putLong(made + Layout.TrainerOptions.DEVICE, scratch.optional(device));
    names(scratch, replicas, made + Layout.TrainerOptions.REPLICAS, made + Layout.TrainerOptions.REPLICA_COUNT);
    scratch.putInt(made + Layout.TrainerOptions.RANK, (int) natural("ranksRank", ranksRank));
    scratch.putInt(made + Layout.TrainerOptions.RANK_COUNT, (int) natural("ranksCount", ranksCount));
    scratch.putLong(made + Layout.TrainerOptions.COLLECTIVE, scratch.optional(collectiveName));
    scratch.putLong(made + Layout.TrainerOptions.COLLECTIVE_STORE, scratch.optional(collectiveStore));
    scratch.putLong(made + Layout.TrainerOptions.BUCKET_BYTES, natural("bucketBytes", bucketBytes));
    long rows = groups.isEmpty() ? 0 : scratch.allocate((long) Layout.ParameterGroup.SIZE * groups.size());
    for (int i = 0; i < groups.size(); i++) {
      long row = rows + (long) Layout.ParameterGroup.SIZE * i;
      names(scratch, groups.get(i).names(), row + Layout.ParameterGroup.NAMES, row + Layout.ParameterGroup.NAME_COUNT);
      scratch.putDouble(row + Layout.ParameterGroup.RATE_FACTOR, groups.get(i).rateFactor());
      scratch.putDouble(row + Layout.ParameterGroup.WEIGHT_DECAY, groups.get(i).weightDecay());
    }
    scratch.putLong(made + Layout.TrainerOptions.GROUPS, rows);
    scratch.putInt(made + Layout.TrainerOptions.GROUP_COUNT, groups.size());
    scratch.putInt(made + Layout.TrainerOptions.COLLECTIVE_TIMEOUT_MS, timeout());
    scratch.putLong(made + Layout.TrainerOptions.DATA, scratch.bytes(data));
    scratch.putLong(made + Layout.TrainerOptions.SIZE_, data.length);
    if (externalDirectory != null) scratch.putLong(made + Layout.TrainerOptions.EXTERNAL_DIR, scratch.text(externalDirectory.toString()));
    scratch.putLong(made + Layout.TrainerOptions.CANCEL, CancelToken.handleOf(token));
    if (held != 0) {
      scratch.putLong(made + Layout.TrainerOptions.REDUCE, Native.REDUCE);
      scratch.putLong(made + Layout.TrainerOptions.REDUCE_CONTEXT, held);
    }
    return made;
  }
}

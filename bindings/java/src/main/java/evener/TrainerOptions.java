package evener;

import java.nio.file.Path;
import java.util.List;

/** Options of a trainer. What is not set is the library's default: SGD with the cross-entropy of classes. 0 is a number. */
public final class TrainerOptions {
  /** A number that is not given: its default is used. It is a NaN. */
  public static final double DEFAULT = Double.NaN;

  /** A count that is not given: its default is used. */
  public static final int DEFAULT_COUNT = -1;

  private Loss loss = Loss.SOFTMAX_CROSS_ENTROPY;
  private String output;
  private List<String> trainable = List.of();
  private List<String> frozen = List.of();
  private Precision precision = Precision.DEFAULT;
  private Optimizer optimizer = Optimizer.SGD;
  private double learningRate = DEFAULT;
  private double momentum;
  private double dampening;
  private double weightDecay = DEFAULT;
  private double betasFirst = DEFAULT;
  private double betasSecond = DEFAULT;
  private double epsilon = DEFAULT;
  private double alpha = DEFAULT;
  private double rateDecay;
  private Schedule schedule = Schedule.CONSTANT;
  private long warmupSteps;
  private long scheduleSteps;
  private double scheduleFactor = DEFAULT;
  private double leastRate;
  private double plateauThreshold = DEFAULT;
  private int plateauPatience = DEFAULT_COUNT;
  private double clipNorm;
  private double clipValue;
  private int accumulate;
  private double lossScale = DEFAULT;
  private long seed;
  private long memoryLimit;
  private double pruneShare;
  private long pruneBegin;
  private long pruneSteps;
  private String device;
  private List<String> replicas = List.of();
  private int flags;
  private List<ParameterGroup> groups = List.of();
  private Ranks ranks;
  private byte[] data = {};
  private Path externalDirectory;
  private CancelToken token;

  /** Makes options that change nothing. */
  public TrainerOptions() {}

  /**
   * Sets what is made small.
   * @param what cross-entropy of classes, of bits, a distance, or the output itself
   * @return this
   */
  public TrainerOptions loss(Loss what) {
    loss = what;
    return this;
  }

  /**
   * Sets the output that the loss is of.
   * @param name its name; null: the first
   * @return this
   */
  public TrainerOptions output(String name) {
    output = name;
    return this;
  }

  /**
   * Sets which initializers learn.
   * @param names globs of their names; none: all that can
   * @return this
   */
  public TrainerOptions trainable(String... names) {
    trainable = List.of(names);
    return this;
  }

  /**
   * Sets which initializers stay.
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
   * @param rate DEFAULT: 0.01 of Adagrad and RMSprop, 0.001 of the others
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
   * @param decay DEFAULT: 0.01 of AdamW, 0 of the others
   * @return this
   */
  public TrainerOptions weightDecay(double decay) {
    weightDecay = decay;
    return this;
  }

  /**
   * Sets the betas of Adam and AdamW.
   *
   * @param first DEFAULT: 0.9
   * @param second DEFAULT: 0.999
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
   * @param epsilon DEFAULT: 1e-10 of Adagrad, 1e-8 of the others
   * @return this
   */
  public TrainerOptions epsilon(double epsilon) {
    this.epsilon = epsilon;
    return this;
  }

  /**
   * Sets the smoothing of RMSprop.
   *
   * @param alpha DEFAULT: 0.99
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
   * Sets how far a schedule goes down.
   *
   * @param factor what it multiplies the rate by; DEFAULT: 0.1
   * @param least the rate below which it does not go
   * @return this
   */
  public TrainerOptions scheduleRates(double factor, double least) {
    scheduleFactor = factor;
    leastRate = least;
    return this;
  }

  /**
   * Sets when {@link Schedule#PLATEAU} lowers the rate.
   *
   * @param threshold the share by which the metric has to fall; DEFAULT: 1e-4
   * @param patience calls without that; DEFAULT_COUNT: 10
   * @return this
   */
  public TrainerOptions plateau(double threshold, int patience) {
    plateauThreshold = threshold;
    plateauPatience = patience;
    return this;
  }

  /**
   * Bounds gradients.
   *
   * @param norm of all together, at most; 0: no bound
   * @param value of each element, at most; 0: no bound
   * @return this
   */
  public TrainerOptions clip(double norm, double value) {
    clipNorm = norm;
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
   * @param scale DEFAULT: as the precision needs it
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
   * Has several processes train the model together, each with its own part of every batch.
   *
   * @param of which of them this is, and how they sum; null: it is alone
   * @return this
   */
  public TrainerOptions ranks(Ranks of) {
    ranks = of;
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

  Ranks ranks() {
    return ranks;
  }

  CancelToken token() {
    return token;
  }

  static long natural(String what, long number) {
    if (number < 0) throw EvenerException.argument(what + " is " + number);
    return number;
  }

  private static void names(Scratch scratch, List<String> names, long at, long count) {
    scratch.putLong(at, scratch.texts(names));
    scratch.putInt(count, names.size());
  }

  /** Writes them for C. `held` is what C is to hand to the sums; 0: none. */
  long write(Scratch scratch, long held) {
    long made = scratch.allocate(Layout.TrainerOptions.SIZE);
    Raw.trainerOptionsInit(made, Layout.TrainerOptions.SIZE);
    scratch.putInt(made + Layout.TrainerOptions.FLAGS, flags | (ranks == null ? 0 : ranks.flags()));
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
    scratch.putInt(made + Layout.TrainerOptions.PLATEAU_PATIENCE, plateauPatience == DEFAULT_COUNT ? -1 : (int) natural("plateauPatience", plateauPatience));
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
    long rows = groups.isEmpty() ? 0 : scratch.allocate((long) Layout.ParameterGroup.SIZE * groups.size());
    for (int i = 0; i < groups.size(); i++) {
      long row = rows + (long) Layout.ParameterGroup.SIZE * i;
      names(scratch, groups.get(i).names(), row + Layout.ParameterGroup.NAMES, row + Layout.ParameterGroup.NAME_COUNT);
      scratch.putDouble(row + Layout.ParameterGroup.RATE_FACTOR, groups.get(i).rateFactor());
      scratch.putDouble(row + Layout.ParameterGroup.WEIGHT_DECAY, groups.get(i).weightDecay());
    }
    scratch.putLong(made + Layout.TrainerOptions.GROUPS, rows);
    scratch.putInt(made + Layout.TrainerOptions.GROUP_COUNT, groups.size());
    scratch.putLong(made + Layout.TrainerOptions.DATA, scratch.bytes(data));
    scratch.putLong(made + Layout.TrainerOptions.SIZE_, data.length);
    if (externalDirectory != null) scratch.putLong(made + Layout.TrainerOptions.EXTERNAL_DIR, scratch.text(externalDirectory.toString()));
    scratch.putLong(made + Layout.TrainerOptions.CANCEL, CancelToken.handleOf(token));
    if (ranks != null) ranks.write(scratch, made, held);
    return made;
  }
}

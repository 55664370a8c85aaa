package evener;

/**
 * What a step of a {@link Trainer} did.
 *
 * @param loss of this batch, before the parameters moved
 * @param learningRate by which they moved; 0: they did not (skipped, or gradients are being accumulated)
 * @param gradientNorm of all gradients together, before clipping; 0 as above
 * @param lossScale of this step
 * @param skipped whether the loss or a gradient is not finite, and nothing has changed
 * @param step how many have moved the parameters, this one included
 */
public record Step(double loss, double learningRate, double gradientNorm, double lossScale, boolean skipped, long step) {}

// evener train.
#pragma once

#include "cli/library.h"

namespace evn::cli {

inline constexpr Option kTrainOptions[] = {
    {"-o", "FILE", "where the trained model goes, as ONNX"},
    {"--data", "FILE.npz", "what it learns from: keys are the names of the model's inputs, and that of\nthe labels"},
    {"--validate", "FILE.npz", "what it is measured by after each epoch"},
    {"--labels", "NAME", "the key of the labels; default labels"},
    {"--epochs", "N", "how often it goes through the data; default 1"},
    {"--batch", "N", "samples a step, of all ranks together; default 32"},
    {"--loss", "LOSS",
     "softmax_cross_entropy (the default; labels are classes or probabilities),\nbce_with_logits, mse, l1, output"},
    {"--output", "NAME", "the output that the loss is of; default the first"},
    {"--optimizer", "NAME", "sgd (the default), adam, adamw, adagrad, rmsprop"},
    {"--learning-rate", "R", "default 0.01 of adagrad and rmsprop, 0.001 of the others"},
    {"--schedule", "NAME",
     "how the rate goes on: constant (the default), step, exponential, cosine,\nplateau (of the validation's loss)"},
    {"--schedule-steps", "N",
     "of cosine: until the least rate, default all steps; of step: between two\nfalls, default a third of all"},
    {"--schedule-factor", "F", "of step, exponential and plateau; default 0.1"},
    {"--least-rate", "R", "of cosine and plateau; default 0"},
    {"--patience", "N", "of plateau: epochs without progress; default 10"},
    {"--warmup", "N", "steps in which the rate grows from 0 first"},
    {"--momentum", "M", "of sgd and rmsprop"},
    {"--nesterov", nullptr, "of sgd with momentum"},
    {"--weight-decay", "W",
     "share of parameters that each step takes away; of adamw apart from the gradient;\ndefault 0.01 of adamw, 0 of the others"},
    {"--clip-norm", "N", "gradients are made smaller where their norm together is more"},
    {"--accumulate", "N", "batches whose mean gradient makes a step"},
    {"--freeze", "GLOB", "names of initializers that stay, and of nodes of BatchNormalization; may be\nrepeated", true},
    {"--trainable", "GLOB", "names of initializers that learn; default all that can; may be repeated", true},
    {"--precision", "P", "fp32 (the default), bf16 or fp16 of products and convolutions"},
    {"--loss-scale", "S", "what the loss is multiplied by for its gradients; default: dynamic with fp16"},
    {"--memory-limit", "BYTES", "of activations, as in 512M; what does not fit is computed again"},
    {"--prune", "SHARE", "the share of channels of convolutions that are removed in training"},
    {"--prune-begin", "N", "steps before the first is removed; default a tenth of all"},
    {"--prune-steps", "N", "over how many steps the share grows; default half of all"},
    {"--seed", "N", "of the order of samples and of Dropout; default 0"},
    {"--checkpoint", "FILE", "where training can go on from; written after each epoch, and on Ctrl-C"},
    {"--every", "N", "write the checkpoint after each N batches too"},
    {"--resume", "FILE", "go on from a checkpoint, with the bits of a training that was not interrupted"},
    {"--report", "FILE.json", "how it went, by epochs and batches"},
    {"--picture", "FILE.svg", "loss, learning rate and accuracy as curves"},
    {"--collective", "NAME", "mpi or gloo: several processes train the model together"},
    {"--store", "FOLDER", "of gloo: a folder that all ranks see, of this run alone"},
    {"--rank", "N", "of this process, from 0 on; default: as the launcher of MPI says"},
    {"--ranks", "N", "how many processes there are"},
    kConfigOption,
    kDeviceOption,
    kThreadsOption,
    kJsonOption,
};

int run_train(const Arguments& arguments);

}  // namespace evn::cli

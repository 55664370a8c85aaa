/* Training: an inference model learns where its data is, and comes back as ONNX. The conventions of evener.h hold.
 *
 *   evn_trainer_create(runtime, "model.onnx", &options, &trainer, &error);
 *   for (...) evn_trainer_step(trainer, inputs, input_count, labels, &info, &error);        one batch each
 *   evn_trainer_evaluate(trainer, inputs, input_count, labels, &evaluation, &error);        batches that it does not learn from
 *   evn_trainer_save(trainer, "state.safetensors", &error);                                 to go on later, with the same bits
 *   evn_trainer_export(trainer, "trained.onnx", &error);                                    ONNX, for any engine
 *   evn_trainer_finish(trainer, &model, &error);                                            or to be run here
 *
 * The model is an ordinary float32 one. What it learns are its float32 initializers that the loss depends on, those of frozen names
 * and the statistics of BatchNormalization excepted. BatchNormalization normalizes by the batch and moves its statistics on as
 * PyTorch does, Dropout drops. The first dim of each input is the batch, also where the model has a number there. A model that was
 * exported for training, or for one size of the batch, is taken as the inference model for any batch that it belongs to.
 *
 * EVN_ERROR_UNSUPPORTED where the library was built without training (EVN_TRAINING=OFF). Calls on one trainer wait for each
 * other. */
#ifndef EVENER_TRAIN_H
#define EVENER_TRAIN_H

#include "evener/evener.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------------------------------------- training -- */

typedef struct evn_trainer_handle *evn_trainer; /* a model that is being trained. @since 0.3 */

/* What is made small. The mean over the batch (and over all elements, of the last two) is. @since 0.3 */
typedef int32_t evn_loss;
enum {
  EVN_LOSS_SOFTMAX_CROSS_ENTROPY = 0, /* of logits [batch, classes, ...]; labels int64 [batch, ...], or float32 probabilities of the
                                         logits' shape. Where the model ends in Softmax or LogSoftmax, of what that reads */
  EVN_LOSS_BCE_WITH_LOGITS = 1,       /* binary cross-entropy of logits; labels float32 of their shape. Where the model ends in
                                         Sigmoid, of what that reads */
  EVN_LOSS_MSE = 2,                   /* (output - label)^2; labels float32 of the output's shape */
  EVN_LOSS_L1 = 3,                    /* |output - label|; labels float32 of the output's shape */
  EVN_LOSS_OUTPUT = 4                 /* the output is the loss, of one element; there are no labels */
};

/* Values of an option that is not given: its default is used. In a field that says "EVN_DEFAULT: ..." 0 is the number 0.
 *   EVN_DEFAULT        of a double; it is a NaN, which a comparison with == does not find
 *   EVN_DEFAULT_COUNT  of a count
 * @since 0.3 */
#define EVN_DEFAULT __builtin_nan("")
#define EVN_DEFAULT_COUNT UINT32_MAX

/* Optimizers. Formulas and defaults are those of torch.optim. @since 0.3 */
typedef int32_t evn_optimizer;
enum {
  EVN_OPTIMIZER_SGD = 0,
  EVN_OPTIMIZER_ADAM = 1,
  EVN_OPTIMIZER_ADAMW = 2,
  EVN_OPTIMIZER_ADAGRAD = 3,
  EVN_OPTIMIZER_RMSPROP = 4
};

/* How the learning rate goes on, step by step, after a linear warm-up from 0 where there is one. @since 0.3 */
typedef int32_t evn_schedule;
enum {
  EVN_SCHEDULE_CONSTANT = 0,
  EVN_SCHEDULE_STEP = 1,        /* times schedule_factor after each schedule_steps steps */
  EVN_SCHEDULE_EXPONENTIAL = 2, /* times schedule_factor after each step */
  EVN_SCHEDULE_COSINE = 3,      /* to least_rate at schedule_steps, by half a cosine; then constant */
  EVN_SCHEDULE_PLATEAU = 4      /* times schedule_factor when what evn_trainer_note_metric is told has not fallen by more than the
                                   share plateau_threshold for plateau_patience calls; not below least_rate */
};

enum {
  EVN_TRAIN_NESTEROV = 1,    /* of SGD */
  EVN_TRAIN_CENTERED = 2,    /* of RMSprop */
  EVN_TRAIN_CHECK_RANKS = 4, /* ranks compare checksums of their parameters after each step; EVN_ERROR_WRONG_STATE: they differ */
  EVN_TRAIN_SYNC_NORM = 8    /* BatchNormalization normalizes by the batches of all ranks together; these then have one size */
};

/* Data-parallel training in several processes. The ranks make the same calls in the same order: evn_trainer_create, _step,
 * _restore, _note_metric (with the same value) and _set_learning_rate. In a step each gives its own rows of the batch, with their
 * labels.
 *
 * All-reduce, for engines of the host: `data` becomes its sum over all ranks, element by element, with the same bits in
 * all of them. Every rank makes the same calls, with the same counts, in the same order; one thread at a time calls, not always the
 * same one, until evn_trainer_release has returned and no call with the trainer is under way. Where a rank is missing it returns a
 * status instead of waiting for ever; the trainer then ends each call with that.
 *   dtype  EVN_DTYPE_FLOAT32 or EVN_DTYPE_FLOAT64 @since 0.3 */
typedef evn_status (*evn_reduce)(void *context, void *data, uint64_t count, evn_dtype dtype, evn_error *error);

/* Parameters that are treated otherwise than the rest. */
typedef struct evn_parameter_group {
  const char *const *names; /* globs of names of initializers */
  uint32_t name_count;
  uint32_t reserved;        /* 0 */
  double rate_factor;       /* times the learning rate; EVN_DEFAULT: 1. With 0 these parameters do not move */
  double weight_decay;      /* EVN_DEFAULT: that of the options */
} evn_parameter_group;

typedef struct evn_trainer_options {
  uint32_t struct_size;
  evn_loss loss;
  evn_optimizer optimizer;
  evn_schedule schedule;
  uint32_t flags;                  /* EVN_TRAIN_... */
  evn_precision precision;         /* of products and convolutions in both passes: EVN_PRECISION_FP32 (and DEFAULT),
                                      EVN_PRECISION_BF16 or EVN_PRECISION_FP16. Parameters, sums, normalizations and the loss stay
                                      float32 */
  const char *output;              /* the output that the loss is of; NULL: the first */
  const char *const *trainable;    /* globs of names of float32 initializers; NULL: all that can learn; an empty list is an error.
                                      These stay unless their whole name is given here: initializers that look like a mask or an
                                      epsilon, exponents of one element, options of operators that are operands too, and, in a
                                      model that says which initializers were parameters (as those of torch.onnx do), all others.
                                      Initializers with elements that are not finite stay. evn_trainer_describe says what stays and
                                      why. The whole name of one that is not finite, or of the output of a Constant node, is an
                                      error */
  const char *const *frozen;       /* those that stay; also nodes of BatchNormalization, or their moving mean or variance: these
                                      nodes then normalize by their statistics */
  uint32_t trainable_count;
  uint32_t frozen_count;
  const evn_parameter_group *groups; /* the first with a name that matches counts */
  uint32_t group_count;
  uint32_t accumulate;             /* steps of which the mean gradient moves the parameters once; 0: 1. With several ranks batches
                                      then have one size */
  double learning_rate;            /* EVN_DEFAULT: 0.01 (Adagrad, RMSprop), 0.001 (the others). With 0 the parameters do not move */
  double momentum;                 /* of SGD and RMSprop */
  double dampening;                /* of SGD, 0 to 1; a number below 1 that float32 rounds to 1 is refused */
  double weight_decay;             /* EVN_DEFAULT: 0.01 (AdamW), 0 (the others) */
  double beta1;                    /* of Adam and AdamW, 0 to 0.99999994; EVN_DEFAULT: 0.9 */
  double beta2;                    /* of Adam and AdamW, 0 to 0.99999994; EVN_DEFAULT: 0.999 */
  double epsilon;                  /* EVN_DEFAULT: 1e-10 (Adagrad), 1e-8 (the others) */
  double alpha;                    /* of RMSprop, 0 to 1, as dampening; EVN_DEFAULT: 0.99 */
  double rate_decay;               /* of Adagrad */
  double clip_norm;                /* gradients are made smaller so that their norm together is at most this; 0: they are not. A
                                      number above 0 that float32 rounds to 0 is refused */
  double clip_value;               /* each element of a gradient stays within -this .. this; 0: no. As clip_norm */
  uint64_t warmup_steps;
  uint64_t schedule_steps;
  double schedule_factor;          /* EVN_DEFAULT: 0.1 */
  double least_rate;
  double plateau_threshold;        /* EVN_DEFAULT: 1e-4 */
  uint32_t plateau_patience;       /* EVN_DEFAULT_COUNT: 10 */
  uint32_t reserved;               /* 0 */
  uint64_t seed;                   /* of Dropout */
  const char *device;              /* where it is trained, as in evn_session_options; NULL: as the configuration says */
  const void *data;                /* the model's bytes, which are copied, when path is NULL */
  size_t size;                     /* bytes of data */
  const char *external_dir;        /* as in evn_model_options, for a model from `data` */
  evn_cancel cancel;               /* nullable: once it is requested, evn_trainer_create, evn_trainer_step and evn_trainer_evaluate
                                      end with EVN_ERROR_CANCELLED. The other calls do not: what has been learned can be saved */
  double loss_scale;               /* factor of the loss whose gradients are computed, which are then divided by it: 1e-9 to 1e9.
                                      EVN_DEFAULT: dynamic with EVN_PRECISION_FP16 (65536 at first, halved by a step whose gradients
                                      are not finite, which is skipped, doubled after 2,000 steps without any, as
                                      torch.amp.GradScaler), else 1 */
  uint64_t memory_limit;           /* bytes of activations that a step may have at a time: of all that it computes with but
                                      parameters, gradients and the optimizer's state. What does not fit is computed again in the
                                      backward pass (activation checkpointing), with the same bits, where one device computes
                                      all. Each replica has the same limit. Where that is not enough for the dims of a batch,
                                      evn_trainer_step returns EVN_ERROR_LIMIT with the bytes that would be. 0: no limit */
  double prune_share;              /* the share of the channels of convolutions that are zero at the end, 0 to 0.99; those of the
                                      smallest norm are, and the finished model lacks them. A convolution of 32 channels or more
                                      keeps a multiple of 8. 0: none */
  uint64_t prune_begin;            /* steps before the first channel is pruned; with prune_share alone, as prune_steps */
  uint64_t prune_steps;            /* over how many steps the share grows, by a cubic schedule (Zhu and Gupta, 2017) */
  const char *const *replicas;     /* devices of this runtime, each as `device`: every batch is split among them, in proportion to
                                      their speed, and their gradients are summed. At most 16, without `device` and
                                      without EVN_TRAIN_SYNC_NORM. NULL: `device` alone */
  uint32_t replica_count;
  uint32_t rank;                   /* of this process, 0 .. rank_count - 1. Rank 0's parameters are those that all begin with */
  uint32_t rank_count;             /* processes that train the model together, each with its own part of every batch; 0: as the
                                      collective says, or 1 */
  uint32_t collective_timeout_ms;  /* how long a rank waits for the others; 0: 60,000 */
  evn_reduce reduce;               /* nullable: the sum over ranks by the host; with rank_count, and without `collective` */
  void *reduce_context;
  const char *collective;          /* the sum over ranks by a module: "mpi" (libevener_mpi.so) or "gloo" (libevener_gloo.so); NULL:
                                      none. Ranks on one machine find each other by it, and sum through memory that they share */
  const char *collective_store;    /* of "gloo": a folder that all ranks see, of this run alone */
  uint64_t bucket_bytes;           /* gradients that are summed over ranks at once, while the backward pass goes on; 0: 4 MiB */
} evn_trainer_options;
#define EVN_TRAINER_OPTIONS_INIT \
  {sizeof(evn_trainer_options), 0, 0, 0, 0, 0, NULL, NULL, NULL, 0, 0, NULL, 0, 0, EVN_DEFAULT, 0, 0, EVN_DEFAULT, EVN_DEFAULT, \
   EVN_DEFAULT, EVN_DEFAULT, EVN_DEFAULT, 0, 0, 0, 0, 0, EVN_DEFAULT, 0, EVN_DEFAULT, EVN_DEFAULT_COUNT, 0, 0, NULL, NULL, 0, \
   NULL, NULL, EVN_DEFAULT, 0, 0, 0, 0, NULL, 0, 0, 0, 0, NULL, NULL, NULL, NULL, 0}

/* See evn_error_init. @since 0.3 */
EVN_API void evn_trainer_options_init(evn_trainer_options *options, uint32_t struct_size);

/* Reads a model and makes what trains it. The rates of the schedule begin with this.
 *   path     an ONNX file, or NULL: `data` of the options
 *   options  NULL: as EVN_TRAINER_OPTIONS_INIT
 * Returns what evn_model_load_file returns; EVN_ERROR_UNSUPPORTED (an operator without a rule of differentiation between a
 * parameter and the loss, a node that takes one batch alone, or a node whose derivative is 0 everywhere and through which alone a
 * parameter changes the loss, as QuantizeLinear and Round: the error names it; the module of `collective` is missing);
 * EVN_ERROR_INVALID_ARGUMENT (nothing can learn; a glob that no name matches; a number that is out of range). Blocks; allocates.
 * @since 0.3 */
EVN_API evn_status evn_trainer_create(evn_runtime runtime, const char *path, const evn_trainer_options *options,
                                      evn_trainer *trainer,
                                      evn_error *error);

/* NULL is fine. @since 0.3 */
EVN_API evn_status evn_trainer_release(evn_trainer trainer);

/* The model's inputs, in the order in which batches give them. `index` gets the position of the input of that name. Return
 * EVN_ERROR_INVALID_ARGUMENT where there is none. Inputs with a default are not counted and cannot be given: their defaults count
 * in all batches. @since 0.3 */
EVN_API evn_status evn_trainer_input_count(evn_trainer trainer, uint32_t *count, evn_error *error);
EVN_API evn_status evn_trainer_find_input(evn_trainer trainer, const char *name, uint32_t *index, evn_error *error);

/* What a step did. @since 0.3 */
typedef struct evn_step_info {
  uint32_t struct_size;
  uint32_t skipped;      /* 1: the loss, a gradient, or a parameter that the step would have made is not finite, and nothing has
                            changed. evn_trainer_describe has the reason */
  uint64_t step;         /* how many have moved the parameters, this one included */
  double loss;           /* of this batch, before the parameters moved */
  double learning_rate;  /* by which they moved; 0: they did not (skipped, or gradients are being accumulated) */
  double gradient_norm;  /* of all gradients together, before clipping; 0 as above */
  double loss_scale;     /* of this step */
} evn_step_info;
#define EVN_STEP_INFO_INIT {sizeof(evn_step_info), 0, 0, 0, 0, 0, 0}

/* See evn_error_init. @since 0.3 */
EVN_API void evn_step_info_init(evn_step_info *info, uint32_t struct_size);

/* Learns from one batch.
 *   inputs  the model's inputs, in its order, as evn_session_run takes them
 *   labels  exactly of the shape that the loss says: nothing is repeated to fit; NULL with EVN_LOSS_OUTPUT
 *   info    nullable
 * Returns EVN_ERROR_INVALID_ARGUMENT (dtypes or shapes that do not fit; a label that is no class), what evn_session_run returns.
 * The parameters, and the random numbers of later steps, are then as they were before. The first step with other dims
 * makes plans. @since 0.3 */
EVN_API evn_status evn_trainer_step(evn_trainer trainer, const evn_tensor *inputs, uint32_t input_count, evn_tensor labels,
                                    evn_step_info *info, evn_error *error);

/* How good the model is on a batch. @since 0.3 */
typedef struct evn_evaluation {
  uint32_t struct_size;
  uint32_t reserved;
  double loss;       /* the mean of the batch */
  uint64_t correct;  /* of the loss of classes and that of BCE: rows whose largest logit is that of the label, elements on the right
                        side of 0; of the others 0 */
  uint64_t count;    /* of how many */
} evn_evaluation;
#define EVN_EVALUATION_INIT {sizeof(evn_evaluation), 0, 0, 0, 0}

/* See evn_error_init. @since 0.3 */
EVN_API void evn_evaluation_init(evn_evaluation *evaluation, uint32_t struct_size);

/* Runs the model as it is in use (BatchNormalization by its statistics, no Dropout) and compares its output with labels. Nothing is
 * learned. Returns what evn_trainer_step returns. @since 0.3 */
EVN_API evn_status evn_trainer_evaluate(evn_trainer trainer, const evn_tensor *inputs, uint32_t input_count, evn_tensor labels,
                                        evn_evaluation *evaluation, evn_error *error);

/* Tells EVN_SCHEDULE_PLATEAU what is to fall (a loss of validation); with another schedule nothing happens. A NaN counts as no
 * progress. @since 0.3 */
EVN_API evn_status evn_trainer_note_metric(evn_trainer trainer, double value, evn_error *error);

/* Another rate in the place of the options' learning_rate, from the next step on; the schedule goes on from it. Returns
 * EVN_ERROR_INVALID_ARGUMENT (negative or not finite). @since 0.3 */
EVN_API evn_status evn_trainer_set_learning_rate(evn_trainer trainer, double rate, evn_error *error);

/* What is asked for of a parameter. @since 0.3 */
typedef int32_t evn_parameter_part;
enum {
  EVN_PARAMETER_VALUE = 0,
  EVN_PARAMETER_GRADIENT = 1 /* of the last step, before clipping; zeros before the first */
};

/* Set *count to the number of parameters that learn; write the name of the one at `index`, in the order of their names; copy a part
 * of it into a new tensor. Return EVN_ERROR_INVALID_ARGUMENT where there is none of that index. @since 0.3 */
EVN_API evn_status evn_trainer_parameter_count(evn_trainer trainer, uint32_t *count, evn_error *error);
EVN_API evn_status evn_trainer_parameter_name(evn_trainer trainer, uint32_t index, char *buffer, size_t capacity, size_t *size,
                                              evn_error *error);
EVN_API evn_status evn_trainer_get_parameter(evn_trainer trainer, uint32_t index, evn_parameter_part part, evn_tensor *tensor,
                                             evn_error *error);

/* Writes all that training needs to go on with the same bits: parameters, statistics, the optimizer's state, the schedule, the
 * random state. One file in the format of safetensors; what was at `path` is replaced at the end, in one step. Returns
 * EVN_ERROR_IO, EVN_ERROR_UNSUPPORTED (the name of a parameter or statistic is not UTF-8, as the format requires). @since 0.3 */
EVN_API evn_status evn_trainer_save(evn_trainer trainer, const char *path, evn_error *error);

/* Takes what evn_trainer_save wrote, of a trainer of the same model, parameters, loss, optimizer (with the same state), kind of
 * schedule and prune_share. A dynamic loss scale and accumulated gradients are restored if both trainers have them; otherwise they
 * start afresh. Returns EVN_ERROR_IO, EVN_ERROR_INVALID_ARGUMENT (a file that is cut off or changed, or of another model: the
 * tensor is named); the trainer is then as it was. @since 0.3 */
EVN_API evn_status evn_trainer_restore(evn_trainer trainer, const char *path, evn_error *error);

/* Makes the trained model, with the parameters and statistics of now. It still has the inputs with a default, unless the default
 * learns or was folded. Returns what evn_model_load_buffer returns. @since 0.3 */
EVN_API evn_status evn_trainer_finish(evn_trainer trainer, evn_model *model, evn_error *error);

/* Writes it as an ONNX file, which is replaced at the end, in one step: the model that was given, of opset 17 where that was older,
 * as an inference model, with other numbers. Returns EVN_ERROR_IO, EVN_ERROR_LIMIT (2 GiB or more). @since 0.3 */
EVN_API evn_status evn_trainer_export(evn_trainer trainer, const char *path, evn_error *error);

/* Writes what is trained, and how it went.
 *   format  EVN_FORMAT_TEXT or EVN_FORMAT_JSON: {"loss", "optimizer", "schedule", "output", "steps", "skipped", "batches" (calls of
 *           evn_trainer_step that did not fail), "learning_rate", "precision", "loss_scale", "parameters": [{"name", "dims",
 *           "group", "note" (if it may be no parameter, or if a part of its gradient is 0)}],
 *           "frozen": [{"name", "reason"}], "rank", "rank_count", "transport" (by what ranks are summed:
 *           "shared memory", "mpi", "gloo", "host", ""), "replicas": [{"device", "share" (of each batch)}], "notes": []};
 *           with prune_share also "pruning": {"share", "begin", "steps", "groups": [{"name", "convolutions", "channels", "now",
 *           "at_end"}] (channels that leave together), "others": [{"name", "channels", "reason"}] (that stay)}; with memory_limit
 *           "memory" of the latest step, of the first replica where there are several: {"limit", "activation_bytes",
 *           "unlimited_bytes" (without a limit), "kept_values" (that live at the fullest moment), "recomputed_values",
 *           "recomputed_steps" (of kernels that run again), "steps" (without these)} @since 0.3 */
EVN_API evn_status evn_trainer_describe(evn_trainer trainer, evn_format format, char *buffer, size_t capacity, size_t *size,
                                        evn_error *error);

/* ------------------------------------------------------------------------------------------------------ loading -- */

typedef struct evn_loader_handle *evn_loader; /* gives the batches of a data set, which a thread of its own prepares. @since 0.3 */

/* One array of a data set. */
typedef struct evn_loader_array {
  const char *name;    /* nullable; of messages */
  const int64_t *dims; /* of one sample: rank values > 0; a batch has one dim more, the first */
  const void *data;    /* the samples, one after another, until evn_loader_release has returned; NULL: produce fills */
  evn_dtype dtype;     /* of whole bytes, no strings */
  uint32_t rank;       /* 0: a sample is one element */
} evn_loader_array;

/* Makes samples, on the loader's thread, one call at a time. It must not call evn_loader_start_epoch, evn_loader_next or
 * evn_loader_release with the same loader (EVN_ERROR_WRONG_STATE).
 *   samples  `count` numbers of samples
 *   buffers  one for each array: where these samples go, one after another; NULL of an array that has data
 *   made     how many there are: `count`, which it is set to beforehand. Fewer end an epoch of EVN_LOADER_STREAM
 * What it returns other than EVN_OK, with the message that it has written into *error, ends evn_loader_next. @since 0.3 */
typedef evn_status (*evn_loader_produce)(void *context, const uint64_t *samples, uint32_t count, void *const *buffers,
                                         uint32_t *made, evn_error *error);

enum {
  EVN_LOADER_SHUFFLE = 1,   /* another order in each epoch, by the seed: a shuffle of Fisher and Yates from the last sample down, in
                               which sample i changes places with sample (r * (i + 1)) >> 64, r being 64 bits of Philox4x32-10 with
                               the seed as key and epoch << 64 | i as counter */
  EVN_LOADER_DROP_LAST = 2, /* a last batch that is not full is left out */
  EVN_LOADER_STREAM = 4     /* the number of samples is not known: sample_count is 0, produce fills all arrays, and samples come
                               in the order 0, 1, ...; not with EVN_LOADER_SHUFFLE or ranks */
};

typedef struct evn_loader_options {
  uint32_t struct_size;
  uint32_t array_count;
  const evn_loader_array *arrays;
  uint64_t sample_count;
  uint32_t batch;             /* samples a batch, of all ranks together */
  uint32_t flags;             /* EVN_LOADER_... */
  uint64_t seed;
  uint32_t prefetch;          /* batches that are ready before they are asked for; 0: 2 */
  uint32_t rank;              /* of this process, 0 .. rank_count - 1 */
  uint32_t rank_count;        /* processes that divide each batch: rank r has its samples batch * r / rank_count up to
                                 batch * (r + 1) / rank_count. A last batch with fewer samples than ranks is left out. 0: 1 */
  uint32_t reserved;          /* 0 */
  evn_loader_produce produce; /* nullable where all arrays have data */
  void *produce_context;
  evn_user_release produce_release; /* nullable; called once with the context when produce will not be called any more; not when
                                       evn_loader_create fails */
  evn_cancel cancel;          /* nullable: once it is requested, evn_loader_next ends with EVN_ERROR_CANCELLED */
  const char *device;         /* where the tensors lie: a name as evn_runtime_device_find takes it; they are copied there ahead,
                                 from pinned memory. NULL: host memory */
} evn_loader_options;
#define EVN_LOADER_OPTIONS_INIT {sizeof(evn_loader_options), 0, NULL, 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL}

/* See evn_error_init. @since 0.3 */
EVN_API void evn_loader_options_init(evn_loader_options *options, uint32_t struct_size);

/* Makes a loader, and the memory of prefetch + 1 batches and of the order (4 bytes a sample with EVN_LOADER_SHUFFLE, 8 a sample of
 * the batch), which counts as EVN_MEMORY_TENSORS. Returns EVN_ERROR_INVALID_ARGUMENT (the field is named),
 * EVN_ERROR_UNSUPPORTED (a dtype), EVN_ERROR_OUT_OF_MEMORY, EVN_ERROR_NO_THREADS, EVN_ERROR_LIMIT (2^32
 * samples or more to shuffle, or `tensor_bytes` of the configuration), what evn_runtime_device_find returns. Allocates;
 * evn_loader_next allocates nothing with tensors in host memory. @since 0.3 */
EVN_API evn_status evn_loader_create(evn_runtime runtime, const evn_loader_options *options, evn_loader *loader, evn_error *error);

/* Begins an epoch, whatever has been read of another. The order is a function of the seed and the epoch's number alone: training
 * that is restored goes on with the same batches.
 *   first_batch  the first one that is given; those before it are not read
 * Without a call evn_loader_next begins epoch 0. A batch that is being made is abandoned, after the call of produce if one is
 * running. An evn_loader_next that waits in another thread then waits for the new epoch's batch. Returns
 * EVN_ERROR_INVALID_ARGUMENT (first_batch is above the number of batches), EVN_ERROR_CANCELLED (the loader is being released),
 * EVN_ERROR_WRONG_STATE (called from the loader's own produce). @since 0.3 */
EVN_API evn_status evn_loader_start_epoch(evn_loader loader, uint64_t epoch, uint64_t first_batch, evn_error *error);

/* Gives the next batch, and waits until it is there.
 *   tensors       out; one for each array, in their order. They are the loader's, which releases them, and hold this batch until
 *                 the next call with the loader: then their memory is used again. What runs with them has ended by then, and
 *                 nothing maps them (EVN_ERROR_WRONG_STATE)
 *   tensor_count  the number of arrays
 *   samples       out; how many samples there are, the first dim of the tensors. 0: the epoch is over, and `tensors` is unchanged
 * Returns EVN_ERROR_CANCELLED (the token; or the loader is being released), EVN_ERROR_WRONG_STATE (called from the loader's own
 * produce), what produce returns. After a failure of produce it returns the same until evn_loader_start_epoch. One thread at a time
 * waits in it; others wait for that. @since 0.3 */
EVN_API evn_status evn_loader_next(evn_loader loader, evn_tensor *tensors, uint32_t tensor_count, uint32_t *samples,
                                   evn_error *error);

/* Sets *count to the number of batches of an epoch; 0 with EVN_LOADER_STREAM. Waits for nothing. @since 0.3 */
EVN_API evn_status evn_loader_batch_count(evn_loader loader, uint64_t *count, evn_error *error);

/* Ends the loader, its thread and the tensors that it gave, which runs that use them keep until they end. The order or batch that
 * is being made is abandoned. It waits for a call of produce, from which it must not be called (EVN_ERROR_WRONG_STATE). NULL is
 * fine. @since 0.3 */
EVN_API evn_status evn_loader_release(evn_loader loader);

#ifdef __cplusplus
}
#endif
#endif

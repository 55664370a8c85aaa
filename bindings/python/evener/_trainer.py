"""Training (evener/train.h)."""
import ctypes
import json
import math

import numpy

from . import _arrays, _raw
from ._library import Error, c_path, c_text, c_texts, check, library, new_error, read_text, set_source, sized
from ._model import Model, _format
from ._object import Object
from ._tensor import Tensor, _full_view

_LOSSES = {name: getattr(_raw, f"EVN_LOSS_{name.upper()}") for name in ("softmax_cross_entropy", "bce_with_logits", "mse", "l1", "output")}
_OPTIMIZERS = {name: getattr(_raw, f"EVN_OPTIMIZER_{name.upper()}") for name in ("sgd", "adam", "adamw", "adagrad", "rmsprop")}
_SCHEDULES = {name: getattr(_raw, f"EVN_SCHEDULE_{name.upper()}") for name in ("constant", "step", "exponential", "cosine", "plateau")}
_PRECISIONS = {"float32": _raw.EVN_PRECISION_FP32, "bfloat16": _raw.EVN_PRECISION_BF16, "float16": _raw.EVN_PRECISION_FP16}


class Step:
    """What a step did: .loss of the batch before the parameters moved, .learning_rate and .gradient_norm (0 where they did not), .skipped (something
    was not finite, and nothing has changed), .step (how many have moved the parameters), .loss_scale (of this step)."""

    def __init__(self, info):
        self.loss, self.learning_rate, self.gradient_norm = info.loss, info.learning_rate, info.gradient_norm
        self.skipped, self.step, self.loss_scale = bool(info.skipped), info.step, info.loss_scale

    def __repr__(self):
        return f"Step(step={self.step}, loss={self.loss:.6g}, learning_rate={self.learning_rate:.6g}, skipped={self.skipped})"


class Evaluation:
    """How good a model is on a batch: .loss, .correct of .count, .accuracy (None where the loss has none)."""

    def __init__(self, info):
        self.loss, self.correct, self.count = info.loss, info.correct, info.count
        self.accuracy = info.correct / info.count if info.count else None

    def __repr__(self):
        return f"Evaluation(loss={self.loss:.6g}, correct={self.correct}, count={self.count})"


class Trainer(Object):
    """Trains an inference model; evener/train.h says how.

        trainer = evener.Trainer(runtime, "model.onnx", optimizer="adamw", learning_rate=1e-3)
        for x, y in batches:
            step = trainer.step({"x": x}, y)
        print(trainer.evaluate({"x": held}, labels).accuracy)
        trainer.finish("trained.onnx")

    loss        "softmax_cross_entropy" (of logits; labels are classes or probabilities), "bce_with_logits", "mse", "l1", or "output": the
                output is the loss, and there are no labels
    output      the output that the loss is of; None: the first
    trainable, frozen  globs (or one glob) of names of initializers that learn (None: all that can), or stay; frozen also names nodes of BatchNormalization
    groups      [(globs, rate_factor, weight_decay)]: parameters with a rate and decay of their own. None: a factor of 1, the decay of all
    optimizer   "sgd" (momentum, dampening, nesterov), "adam", "adamw" (betas, epsilon), "adagrad" (rate_decay), "rmsprop" (alpha, centered, momentum)
    schedule    "constant", "step" (schedule_steps, schedule_factor), "exponential" (schedule_factor), "cosine" (schedule_steps, least_rate),
                "plateau" (schedule_factor, patience, threshold, least_rate; note_metric); warmup_steps before any
    clip_norm, clip_value  bounds of gradients
    accumulate  steps of which the mean gradient moves the parameters once
    replicas    devices of the runtime, each as `device`, that share every batch in proportion to their speed
    collective  None, "mpi" (processes that mpirun starts) or "gloo" (processes that are given rank, ranks and store, a folder that all see): data
                parallelism, in which each process gives its part of every batch. An all-reduce of the host, as C has it, is not offered here
    timeout     seconds that a process waits for the others; None: 60
    bucket_bytes  bytes of gradients that are summed at a time, while the backward pass goes on; 0: 4 MiB
    check_ranks, sync_norm  compare the parameters of all processes after each step; normalize (BatchNormalization) by the batches of all
    device      a name, or None: where the configuration says
    seed        of Dropout
    external_dir  the folder of external data, for a model that is given as bytes
    learning_rate  None: 0.01 with Adagrad and RMSprop, 0.001 with the others
    weight_decay   None: 0.01 with AdamW, 0 with the others
    betas, epsilon, alpha, schedule_factor, patience, threshold  None: (0.9, 0.999); 1e-10 with Adagrad, else 1e-8; 0.99; 0.1; 10; 1e-4.
                Of betas each may be None. 0 is the number 0 in all of them
    precision   "float32", or "bfloat16" or "float16" for products and convolutions
    loss_scale  what the loss is multiplied by before gradients are computed, which are divided by it; None: dynamic with "float16", else 1
    prune_share the share of channels of convolutions that become zero, from step prune_begin on over prune_steps steps, and that the finished model
                has no more
    memory_limit  bytes of activations that a step may have; what does not fit is computed again in the backward pass. 0: no limit
    """

    _release = "evn_trainer_release"

    def __init__(self, runtime, model, loss="softmax_cross_entropy", *, output=None, trainable=None, frozen=(), groups=(), optimizer="sgd",
                 learning_rate=None, momentum=0.0, dampening=0.0, nesterov=False, weight_decay=None, betas=None, epsilon=None, alpha=None,
                 rate_decay=0.0, centered=False, schedule="constant", warmup_steps=0, schedule_steps=0, schedule_factor=None, least_rate=0.0,
                 patience=None, threshold=None, clip_norm=0.0, clip_value=0.0, accumulate=1, precision="float32", loss_scale=None, seed=0, device=None,
                 external_dir=None, replicas=(), collective=None, rank=0, ranks=0, store=None, timeout=None, bucket_bytes=0, check_ranks=False, sync_norm=False,
                 prune_share=0.0, prune_begin=0, prune_steps=0, memory_limit=0):
        lib, handle, error = library(), _raw.evn_trainer(), new_error()
        for what, value, known in (("loss", loss, _LOSSES), ("optimizer", optimizer, _OPTIMIZERS), ("schedule", schedule, _SCHEDULES),
                                   ("precision", precision, _PRECISIONS)):
            if value not in known:
                raise ValueError(f"{what} must be one of {', '.join(known)}, not {value!r}")
        if timeout is not None and not timeout > 0:
            raise ValueError(f"timeout is {timeout}, expected seconds above 0, or None")
        if patience == 2 ** 32 - 1:  # EVN_DEFAULT_COUNT, by which C says that a count is not given
            raise OverflowError(f"patience is {patience}, expected 0 to {2 ** 32 - 2}")
        options = _raw.evn_trainer_options()
        lib.evn_trainer_options_init(options, ctypes.sizeof(options))
        options.loss, options.optimizer, options.schedule = _LOSSES[loss], _OPTIMIZERS[optimizer], _SCHEDULES[schedule]
        options.precision, options.accumulate, options.seed = _PRECISIONS[precision], accumulate, seed
        options.flags = (_raw.EVN_TRAIN_NESTEROV if nesterov else 0) | (_raw.EVN_TRAIN_CENTERED if centered else 0)
        options.flags |= (_raw.EVN_TRAIN_CHECK_RANKS if check_ranks else 0) | (_raw.EVN_TRAIN_SYNC_NORM if sync_norm else 0)
        options.replicas, options.replica_count = c_texts(replicas)
        options.collective = None if collective is None else c_text(collective)
        options.collective_store = None if store is None else c_path(store)
        options.rank, options.rank_count, options.bucket_bytes = rank, ranks, bucket_bytes
        options.collective_timeout_ms = 0 if timeout is None else max(1, math.ceil(timeout * 1000))
        options.output = None if output is None else c_text(output)
        options.device = None if device is None else c_text(device)
        if trainable is not None:
            options.trainable, options.trainable_count = c_texts(trainable)
        options.frozen, options.frozen_count = c_texts(frozen)
        options.groups, options.group_count = _groups(groups)
        beta1, beta2 = (None, None) if betas is None else betas
        _set_given(options, learning_rate=learning_rate, weight_decay=weight_decay, beta1=beta1, beta2=beta2, epsilon=epsilon, alpha=alpha,
                   loss_scale=loss_scale, schedule_factor=schedule_factor, plateau_threshold=threshold, plateau_patience=patience)
        options.momentum, options.dampening, options.rate_decay = momentum, dampening, rate_decay
        options.clip_norm, options.clip_value = clip_norm, clip_value
        options.warmup_steps, options.schedule_steps = warmup_steps, schedule_steps
        options.least_rate = least_rate
        options.prune_share, options.prune_begin, options.prune_steps = prune_share, prune_begin, prune_steps
        options.memory_limit = memory_limit
        path = set_source(options, model, external_dir)
        check(lib.evn_trainer_create(runtime._handle, path, options, handle, error), error)
        self._own(handle)
        self._runtime = runtime._owned
        count = ctypes.c_uint32()
        check(lib.evn_trainer_input_count(handle, count, error), error)
        self._input_count = count.value

    def _feed(self, function, inputs, labels, info):
        error = new_error()
        tensors = (_raw.evn_tensor * self._input_count)()
        of_labels = _raw.evn_tensor()
        try:
            for name, value in inputs.items():
                index = ctypes.c_uint32()
                check(self._library.evn_trainer_find_input(self._handle, c_text(name), index, error), error)
                self._library.evn_tensor_release(tensors[index.value])
                tensors[index.value] = self._tensor_of(value, error)
            if isinstance(labels, Tensor):
                of_labels = self._tensor_of(labels, error)
            elif labels is not None:
                labels = numpy.asarray(labels)
                if labels.dtype.kind in "iu":
                    labels = labels.astype(numpy.int64)
                of_labels = _arrays.copied(self._runtime.value, _arrays.input_array(labels, None), error)
            check(function(self._handle, tensors, self._input_count, of_labels, info, error), error)
        finally:
            for tensor in (*tensors, of_labels):
                self._library.evn_tensor_release(tensor)

    def _tensor_of(self, value, error):
        """A handle that the caller releases: of a Tensor for the same memory, of an array for a copy."""
        return _full_view(value) if isinstance(value, Tensor) else _arrays.copied(self._runtime.value, _arrays.input_array(value, None), error)

    def step(self, inputs, labels=None):
        """Learns from a batch {name: array}, of arrays or of Tensors, as a Loader gives them; whole numbers as labels are classes. Returns a
        Step."""
        info = sized(_raw.evn_step_info)
        self._feed(self._library.evn_trainer_step, inputs, labels, info)
        return Step(info)

    def evaluate(self, inputs, labels=None):
        """Compares the model as it is in use with labels. Returns an Evaluation."""
        info = sized(_raw.evn_evaluation)
        self._feed(self._library.evn_trainer_evaluate, inputs, labels, info)
        return Evaluation(info)

    def note_metric(self, value):
        """Tells the schedule "plateau" what is to fall."""
        error = new_error()
        check(self._library.evn_trainer_note_metric(self._handle, value, error), error)

    def set_learning_rate(self, rate):
        """Another rate in the place of `learning_rate`, from the next step on."""
        error = new_error()
        check(self._library.evn_trainer_set_learning_rate(self._handle, rate, error), error)

    @property
    def parameters(self):
        """The parameters that learn: {name: array}, copies."""
        return self._copies(_raw.EVN_PARAMETER_VALUE)

    @property
    def gradients(self):
        """Those of the last step, before clipping: {name: array}, copies."""
        return self._copies(_raw.EVN_PARAMETER_GRADIENT)

    def _copies(self, part):
        error, count = new_error(), ctypes.c_uint32()
        check(self._library.evn_trainer_parameter_count(self._handle, count, error), error)
        found = {}
        for index in range(count.value):
            name = read_text(self._library.evn_trainer_parameter_name, self._handle, index)
            tensor = _raw.evn_tensor()
            check(self._library.evn_trainer_get_parameter(self._handle, index, part, tensor, error), error)
            found[name] = _arrays.OutputTensor(tensor).array(error)
        return found

    def save(self, path):
        """Writes all that training needs to go on with the same bits (safetensors)."""
        error = new_error()
        check(self._library.evn_trainer_save(self._handle, c_path(path), error), error)

    def restore(self, path):
        """Takes what save() wrote."""
        error = new_error()
        check(self._library.evn_trainer_restore(self._handle, c_path(path), error), error)

    def finish(self, path=None):
        """Writes the trained model as an ONNX file; without a path it gives a Model."""
        error = new_error()
        if path is not None:
            return check(self._library.evn_trainer_export(self._handle, c_path(path), error), error)
        handle = _raw.evn_model()
        check(self._library.evn_trainer_finish(self._handle, handle, error), error)
        model = Model.__new__(Model)
        model._own(handle)
        return model

    def describe(self, format="text"):
        """What is trained and how it went: a text, or with "dict" what the JSON has."""
        text = read_text(self._library.evn_trainer_describe, self._handle, _format("json" if format == "dict" else format))
        return json.loads(text) if format == "dict" else text


def _set_given(struct, **values):
    """Sets the fields whose values are not None. A NaN, by which C says that a number is not given, is no number."""
    for name, value in values.items():
        if value is None:
            continue
        if value != value:
            raise Error(_raw.EVN_ERROR_INVALID_ARGUMENT, f"{name} is not a number")
        setattr(struct, name, value)


def _groups(groups):
    rows = (_raw.evn_parameter_group * len(groups))()
    for row, (globs, factor, decay) in zip(rows, groups):
        row.names, row.name_count = c_texts(globs)
        row.rate_factor = row.weight_decay = math.nan
        _set_given(row, rate_factor=factor, weight_decay=decay)
    return (rows if groups else None), len(groups)

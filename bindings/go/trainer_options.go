package evener

// #include "glue.h"
import "C"

import (
	"math"
	"time"
)

// Loss is what is made small.
type Loss int32

// Optimizer is how parameters move: formulas and defaults are those of torch.optim.
type Optimizer int32

// Schedule is how the learning rate goes on, after a linear warm-up where there is one.
type Schedule int32

// Choices of TrainerOptions, as in the C API.
const (
	LossSoftmaxCrossEntropy Loss = C.EVN_LOSS_SOFTMAX_CROSS_ENTROPY // of logits; labels are classes (int64) or probabilities
	LossBCEWithLogits       Loss = C.EVN_LOSS_BCE_WITH_LOGITS
	LossMSE                 Loss = C.EVN_LOSS_MSE
	LossL1                  Loss = C.EVN_LOSS_L1
	LossOutput              Loss = C.EVN_LOSS_OUTPUT // the output is the loss; there are no labels

	OptimizerSGD     Optimizer = C.EVN_OPTIMIZER_SGD
	OptimizerAdam    Optimizer = C.EVN_OPTIMIZER_ADAM
	OptimizerAdamW   Optimizer = C.EVN_OPTIMIZER_ADAMW
	OptimizerAdagrad Optimizer = C.EVN_OPTIMIZER_ADAGRAD
	OptimizerRMSprop Optimizer = C.EVN_OPTIMIZER_RMSPROP

	ScheduleConstant    Schedule = C.EVN_SCHEDULE_CONSTANT
	ScheduleStep        Schedule = C.EVN_SCHEDULE_STEP
	ScheduleExponential Schedule = C.EVN_SCHEDULE_EXPONENTIAL
	ScheduleCosine      Schedule = C.EVN_SCHEDULE_COSINE
	SchedulePlateau     Schedule = C.EVN_SCHEDULE_PLATEAU // falls when what NoteMetric is told does not
)

// ParameterGroup has parameters that are treated otherwise than the rest; the first with a name that matches counts.
type ParameterGroup struct {
	Names       []string // globs of names of initializers
	RateFactor  *float64 // times the learning rate; nil: 1
	WeightDecay *float64 // nil: that of the options
}

// Reduced is what is summed over ranks, in place: one of both slices, which must not be kept.
type Reduced struct {
	Float32 []float32
	Float64 []float64
}

// Given returns a pointer to an option that is given: Given(0.0) is the number 0, where nil is the default.
func Given[T float64 | int](value T) *T { return &value }

// TrainerOptions says how a model is trained. nil is the library's default, and a zero that is no pointer stands for none.
type TrainerOptions struct {
	Loss      Loss
	Output    string   // the output that the loss is of; "": the first
	Trainable []string // globs of names of initializers that learn; none: all that can
	Frozen    []string // those that stay; also nodes of BatchNormalization
	Groups    []ParameterGroup
	Precision int32 // of products and convolutions in both passes: PrecisionFP32, ...

	Optimizer           Optimizer
	LearningRate        *float64
	Momentum, Dampening float64
	Nesterov            bool
	WeightDecay         *float64
	Beta1, Beta2        *float64
	Epsilon             *float64
	Alpha               *float64 // of RMSprop
	Centered            bool     // of RMSprop
	RateDecay           float64  // of Adagrad

	Schedule         Schedule
	WarmupSteps      uint64
	ScheduleSteps    uint64
	ScheduleFactor   *float64
	LeastRate        float64
	PlateauThreshold *float64
	PlateauPatience  *int

	ClipNorm, ClipValue float64
	Accumulate          int // steps of which the mean gradient moves the parameters once
	LossScale           *float64
	Seed                uint64 // of Dropout
	MemoryLimit         uint64 // bytes of activations that a step may keep; what does not fit is computed again
	PruneShare          float64
	PruneBegin          uint64
	PruneSteps          uint64

	Device      string
	Data        []byte // the model's bytes, where the path is ""
	ExternalDir string

	Replicas          []string // devices that share each batch
	Rank, RankCount   int
	CollectiveTimeout time.Duration
	// Reduce makes of numbers their sums over all ranks, with the same bits in all of them. An error, or a panic, ends the trainer's call. It is
	// called on any thread, by one at a time, and must not call the trainer.
	Reduce          func(Reduced) error
	Collective      string // "mpi" or "gloo": the sum over ranks by a module
	CollectiveStore string
	BucketBytes     uint64
	CheckRanks      bool // ranks compare checksums of their parameters after each step
	SyncNorm        bool // BatchNormalization normalizes by the batches of all ranks together
}

// setGiven sets a number that is given. A NaN, by which C says that it is not, is none.
func setGiven(to *C.double, value *float64, name string) error {
	if value == nil {
		return nil
	}
	if math.IsNaN(*value) {
		return argument("%s is not a number", name)
	}
	*to = C.double(*value)
	return nil
}

func (o *TrainerOptions) numbers() (raw C.evn_trainer_options, err error) {
	raw = C.evn_trainer_options_initial()
	if o.CollectiveTimeout < 0 {
		return raw, argument("CollectiveTimeout is %v", o.CollectiveTimeout)
	}
	for _, number := range []struct {
		name  string
		value int
		to    *C.uint32_t
	}{
		{"Accumulate", o.Accumulate, &raw.accumulate},
		{"Rank", o.Rank, &raw.rank}, {"RankCount", o.RankCount, &raw.rank_count},
		{"CollectiveTimeout in milliseconds", int((o.CollectiveTimeout + time.Millisecond - 1) / time.Millisecond), &raw.collective_timeout_ms},
	} {
		if err := setInt(number.to, number.value, number.name); err != nil {
			return raw, err
		}
	}
	if o.PlateauPatience != nil {
		if *o.PlateauPatience < 0 || uint64(*o.PlateauPatience) >= math.MaxUint32 {
			return raw, argument("PlateauPatience is %d", *o.PlateauPatience)
		}
		raw.plateau_patience = C.uint32_t(*o.PlateauPatience)
	}
	for _, number := range []struct {
		name  string
		value *float64
		to    *C.double
	}{
		{"LearningRate", o.LearningRate, &raw.learning_rate}, {"WeightDecay", o.WeightDecay, &raw.weight_decay},
		{"Beta1", o.Beta1, &raw.beta1}, {"Beta2", o.Beta2, &raw.beta2}, {"Epsilon", o.Epsilon, &raw.epsilon}, {"Alpha", o.Alpha, &raw.alpha},
		{"ScheduleFactor", o.ScheduleFactor, &raw.schedule_factor}, {"PlateauThreshold", o.PlateauThreshold, &raw.plateau_threshold},
		{"LossScale", o.LossScale, &raw.loss_scale},
	} {
		if err := setGiven(number.to, number.value, number.name); err != nil {
			return raw, err
		}
	}
	for _, flag := range []struct {
		given bool
		flag  C.uint32_t
	}{
		{o.Nesterov, C.EVN_TRAIN_NESTEROV}, {o.Centered, C.EVN_TRAIN_CENTERED}, {o.CheckRanks, C.EVN_TRAIN_CHECK_RANKS}, {o.SyncNorm, C.EVN_TRAIN_SYNC_NORM},
	} {
		if flag.given {
			raw.flags |= flag.flag
		}
	}
	raw.loss, raw.optimizer, raw.schedule = C.evn_loss(o.Loss), C.evn_optimizer(o.Optimizer), C.evn_schedule(o.Schedule)
	raw.precision, raw.seed = C.evn_precision(o.Precision), C.uint64_t(o.Seed)
	raw.momentum, raw.dampening, raw.rate_decay = C.double(o.Momentum), C.double(o.Dampening), C.double(o.RateDecay)
	raw.clip_norm, raw.clip_value = C.double(o.ClipNorm), C.double(o.ClipValue)
	raw.warmup_steps, raw.schedule_steps = C.uint64_t(o.WarmupSteps), C.uint64_t(o.ScheduleSteps)
	raw.least_rate, raw.memory_limit = C.double(o.LeastRate), C.uint64_t(o.MemoryLimit)
	raw.prune_share, raw.prune_begin, raw.prune_steps = C.double(o.PruneShare), C.uint64_t(o.PruneBegin), C.uint64_t(o.PruneSteps)
	raw.bucket_bytes = C.uint64_t(o.BucketBytes)
	return raw, nil
}

func (b *bag) trainer(o *TrainerOptions) (raw C.evn_trainer_options, err error) {
	if raw, err = o.numbers(); err != nil {
		return raw, err
	}
	for _, text := range []struct {
		to   **C.char
		from string
	}{
		{&raw.output, o.Output}, {&raw.device, o.Device}, {&raw.external_dir, o.ExternalDir}, {&raw.collective, o.Collective},
		{&raw.collective_store, o.CollectiveStore},
	} {
		if *text.to, err = b.optional(text.from); err != nil {
			return raw, err
		}
	}
	if raw.trainable, err = b.texts(o.Trainable); err != nil {
		return raw, err
	}
	if raw.frozen, err = b.texts(o.Frozen); err != nil {
		return raw, err
	}
	if raw.replicas, err = b.texts(o.Replicas); err != nil {
		return raw, err
	}
	raw.trainable_count, raw.frozen_count, raw.replica_count = C.uint32_t(len(o.Trainable)), C.uint32_t(len(o.Frozen)), C.uint32_t(len(o.Replicas))
	groups := room[C.evn_parameter_group](b, len(o.Groups))
	for i, group := range o.Groups {
		if groups[i].names, err = b.texts(group.Names); err != nil {
			return raw, err
		}
		groups[i].name_count = C.uint32_t(len(group.Names))
		groups[i].rate_factor, groups[i].weight_decay = C.double(math.NaN()), C.double(math.NaN())
		if err = setGiven(&groups[i].rate_factor, group.RateFactor, "RateFactor"); err != nil {
			return raw, err
		}
		if err = setGiven(&groups[i].weight_decay, group.WeightDecay, "WeightDecay"); err != nil {
			return raw, err
		}
	}
	raw.groups, raw.group_count = first(groups), C.uint32_t(len(groups))
	raw.data, raw.size = b.bytes(o.Data), C.size_t(len(o.Data))
	return raw, nil
}

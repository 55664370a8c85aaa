package evener

// #include "glue.h"
import "C"

import (
	"context"
	"math"
	"runtime"
	"runtime/cgo"
	"sync"
	"unsafe"
)

type reduce func(Reduced) error

// on hands the numbers in memory of C to the function.
func (of reduce) on(data unsafe.Pointer, count uint64, dtype DType) error {
	if count > math.MaxInt64/8 {
		return argument("a sum of %d numbers", count)
	}
	switch dtype {
	case DFloat32:
		return of(Reduced{Float32: unsafe.Slice((*float32)(data), int(count))})
	case DFloat64:
		return of(Reduced{Float64: unsafe.Slice((*float64)(data), int(count))})
	}
	return argument("a sum of dtype %v", dtype)
}

//export evenerReduce
func evenerReduce(user C.uintptr_t, data unsafe.Pointer, count C.uint64_t, dtype C.evn_dtype, e *C.evn_error) C.evn_status {
	return told(e, "the sum over ranks", func() error { return valueOf(user).(reduce).on(data, uint64(count), DType(dtype)) })
}

// lease ends a handle that callbacks are given when it is closed and no call is under way that may use it.
type lease struct {
	sync.Mutex
	handle cgo.Handle
	calls  int
	closed bool
}

func (l *lease) enter() {
	l.Lock()
	l.calls++
	l.Unlock()
}

func (l *lease) leave(closes bool) {
	l.Lock()
	if closes {
		l.closed = true
	} else {
		l.calls--
	}
	if l.closed && l.calls == 0 && l.handle != 0 {
		l.handle.Delete()
		l.handle = 0
	}
	l.Unlock()
}

// Trainer trains a model. Several goroutines may use it: their calls wait for each other.
type Trainer struct {
	object *object
	bound  *binding
	lease  *lease
}

func (t *Trainer) self() *object {
	if t == nil {
		return nil
	}
	return t.object
}

// Close ends the hold. It never fails; the second call does nothing.
func (t *Trainer) Close() error { return t.self().Close() }

func releaseTrainer(raw C.uintptr_t) { C.evn_trainer_release(raw) }

// NewTrainer reads a model from a path, or where that is "" from the options' Data. The context is of all calls of the trainer: once it has
// ended, steps and evaluations end with its error.
func (r *Runtime) NewTrainer(ctx context.Context, path string, options *TrainerOptions) (*Trainer, error) {
	if options == nil {
		options = &TrainerOptions{}
	}
	var bag bag
	defer bag.free()
	raw, err := bag.trainer(options)
	if err != nil {
		return nil, err
	}
	text, err := bag.optional(path)
	if err != nil {
		return nil, err
	}
	bound, err := bind(ctx, false)
	if err != nil {
		return nil, err
	}
	raw.cancel = bound.token
	held := &lease{}
	if options.Reduce != nil {
		held.handle = cgo.NewHandle(reduce(options.Reduce))
		raw.reduce, raw.reduce_context = C.evn_reduce(C.evn_go_reduce), C.uintptr_t(held.handle)
	}
	release := func(raw C.uintptr_t) {
		releaseTrainer(raw)
		bound.end()
		held.leave(true)
	}
	made, err := r.self().make("trainer", release, func(of C.uintptr_t, out *C.uintptr_t, e *C.evn_error) C.evn_status {
		return C.evn_trainer_create(of, text, &raw, out, e)
	})
	if err != nil {
		bound.end()
		held.leave(true)
		return nil, bound.caused(err)
	}
	return &Trainer{made, bound, held}, nil
}

// with calls a function with the handle; what callbacks are given stays meanwhile.
func (t *Trainer) with(call func(C.uintptr_t, *C.evn_error) C.evn_status) error {
	if _, err := t.self().handle(); err != nil {
		return err
	}
	t.lease.enter()
	defer t.lease.leave(false)
	return t.bound.caused(t.self().with(call))
}

// given calls a function with inputs by name, in the model's order, and labels.
func (t *Trainer) given(inputs map[string]*Tensor, labels *Tensor, call func(C.uintptr_t, *C.evn_tensor, C.uint32_t, C.evn_tensor, *C.evn_error) C.evn_status) error {
	count, err := t.InputCount()
	if err != nil {
		return err
	}
	handles := make([]C.evn_tensor, count)
	for name, tensor := range inputs {
		index, err := t.FindInput(name)
		if err != nil {
			return err
		}
		if handles[index], err = tensor.handle(); err != nil {
			return err
		}
	}
	var classes C.evn_tensor
	if labels != nil {
		if classes, err = labels.handle(); err != nil {
			return err
		}
	}
	err = t.with(func(raw C.uintptr_t, e *C.evn_error) C.evn_status {
		return call(raw, first(handles), C.uint32_t(count), classes, e)
	})
	runtime.KeepAlive(inputs)
	runtime.KeepAlive(labels)
	return err
}

// InputCount gives how many inputs the model has.
func (t *Trainer) InputCount() (int, error) {
	return countBy(t.self(), func(raw C.uintptr_t, count *C.uint32_t, e *C.evn_error) C.evn_status {
		return C.evn_trainer_input_count(raw, count, e)
	})
}

// FindInput gives the place of the input of a name.
func (t *Trainer) FindInput(name string) (int, error) {
	var bag bag
	defer bag.free()
	text, err := bag.text(name)
	if err != nil {
		return 0, err
	}
	var index C.uint32_t
	err = t.self().with(func(raw C.uintptr_t, e *C.evn_error) C.evn_status {
		return C.evn_trainer_find_input(raw, text, &index, e)
	})
	return int(index), err
}

// Step says what a step did.
type Step struct {
	Loss         float64 // of this batch, before the parameters moved
	LearningRate float64 // by which they moved; 0: they did not
	GradientNorm float64 // before clipping; 0 as above
	LossScale    float64
	Skipped      bool   // the loss or a gradient is not finite, and nothing has changed
	Step         uint64 // how many have moved the parameters
}

// Step learns from one batch. Labels are as the loss says; nil with LossOutput.
func (t *Trainer) Step(inputs map[string]*Tensor, labels *Tensor) (Step, error) {
	info := C.evn_step_info_initial()
	err := t.given(inputs, labels, func(raw C.uintptr_t, at *C.evn_tensor, count C.uint32_t, labels C.evn_tensor, e *C.evn_error) C.evn_status {
		return C.evn_trainer_step(raw, at, count, labels, &info, e)
	})
	if err != nil {
		return Step{}, err
	}
	return Step{float64(info.loss), float64(info.learning_rate), float64(info.gradient_norm), float64(info.loss_scale), info.skipped != 0, uint64(info.step)}, nil
}

// Evaluation says how good a model is on a batch.
type Evaluation struct {
	Loss           float64
	Correct, Count uint64 // 0 where the loss has none
}

// Accuracy gives Correct / Count, or a NaN where the loss has none.
func (e Evaluation) Accuracy() float64 { return float64(e.Correct) / float64(e.Count) }

// Evaluate compares the model as it is in use with labels; nothing is learned.
func (t *Trainer) Evaluate(inputs map[string]*Tensor, labels *Tensor) (Evaluation, error) {
	info := C.evn_evaluation_initial()
	err := t.given(inputs, labels, func(raw C.uintptr_t, at *C.evn_tensor, count C.uint32_t, labels C.evn_tensor, e *C.evn_error) C.evn_status {
		return C.evn_trainer_evaluate(raw, at, count, labels, &info, e)
	})
	if err != nil {
		return Evaluation{}, err
	}
	return Evaluation{float64(info.loss), uint64(info.correct), uint64(info.count)}, nil
}

// NoteMetric tells SchedulePlateau what is to fall.
func (t *Trainer) NoteMetric(value float64) error {
	return t.with(func(raw C.uintptr_t, e *C.evn_error) C.evn_status {
		return C.evn_trainer_note_metric(raw, C.double(value), e)
	})
}

// SetLearningRate gives another rate in the place of the options', from the next step on.
func (t *Trainer) SetLearningRate(rate float64) error {
	return t.with(func(raw C.uintptr_t, e *C.evn_error) C.evn_status {
		return C.evn_trainer_set_learning_rate(raw, C.double(rate), e)
	})
}

// Parameters gives copies of the parameters that learn, by their names.
func (t *Trainer) Parameters() (map[string]*Tensor, error) { return t.copies(C.EVN_PARAMETER_VALUE) }

// Gradients gives copies of their gradients in the last step, before clipping.
func (t *Trainer) Gradients() (map[string]*Tensor, error) {
	return t.copies(C.EVN_PARAMETER_GRADIENT)
}

func (t *Trainer) copies(part C.evn_parameter_part) (map[string]*Tensor, error) {
	count, err := countBy(t.self(), func(raw C.uintptr_t, count *C.uint32_t, e *C.evn_error) C.evn_status {
		return C.evn_trainer_parameter_count(raw, count, e)
	})
	if err != nil {
		return nil, err
	}
	made := make(map[string]*Tensor, count)
	for i := C.uint32_t(0); int(i) < count && err == nil; i++ {
		var name string
		var tensor C.uintptr_t
		name, err = t.self().text(64, func(raw C.uintptr_t, buffer *C.char, capacity C.size_t, size *C.size_t, e *C.evn_error) C.evn_status {
			return C.evn_trainer_parameter_name(raw, i, buffer, capacity, size, e)
		})
		if err == nil {
			err = t.with(func(raw C.uintptr_t, e *C.evn_error) C.evn_status {
				return C.evn_trainer_get_parameter(raw, i, part, &tensor, e)
			})
		}
		if err == nil {
			made[name] = newTensor(tensor)
		}
	}
	if err != nil {
		for _, tensor := range made {
			tensor.Close()
		}
		return nil, err
	}
	return made, nil
}

func (t *Trainer) file(path string, call func(C.uintptr_t, *C.char, *C.evn_error) C.evn_status) error {
	if _, err := t.self().handle(); err != nil {
		return err
	}
	var bag bag
	defer bag.free()
	text, err := bag.text(path)
	if err != nil {
		return err
	}
	return t.with(func(raw C.uintptr_t, e *C.evn_error) C.evn_status { return call(raw, text, e) })
}

// Save writes all that training needs to go on with the same bits, in one step (safetensors).
func (t *Trainer) Save(path string) error {
	return t.file(path, func(raw C.uintptr_t, path *C.char, e *C.evn_error) C.evn_status {
		return C.evn_trainer_save(raw, path, e)
	})
}

// Restore takes what Save wrote.
func (t *Trainer) Restore(path string) error {
	return t.file(path, func(raw C.uintptr_t, path *C.char, e *C.evn_error) C.evn_status {
		return C.evn_trainer_restore(raw, path, e)
	})
}

// Export writes the trained model as an ONNX file, in one step.
func (t *Trainer) Export(path string) error {
	return t.file(path, func(raw C.uintptr_t, path *C.char, e *C.evn_error) C.evn_status {
		return C.evn_trainer_export(raw, path, e)
	})
}

// Finish makes the trained model, with the parameters of now.
func (t *Trainer) Finish() (*Model, error) {
	var made C.uintptr_t
	if err := t.with(func(raw C.uintptr_t, e *C.evn_error) C.evn_status { return C.evn_trainer_finish(raw, &made, e) }); err != nil {
		return nil, err
	}
	return &Model{own("model", made, releaseModel)}, nil
}

// Describe writes what is trained, and how it went.
func (t *Trainer) Describe(format Format) (string, error) {
	return t.self().text(4096, func(raw C.uintptr_t, buffer *C.char, capacity C.size_t, size *C.size_t, e *C.evn_error) C.evn_status {
		return C.evn_trainer_describe(raw, C.evn_format(format), buffer, capacity, size, e)
	})
}

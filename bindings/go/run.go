package evener

// #include "glue.h"
import "C"

import (
	"context"
	"runtime"
	"sync"
	"time"
)

// RunOptions says how a run is made.
type RunOptions struct {
	AllowCopies     bool          // inputs and outputs may lie on another device than the plan has them, and are copied
	Timeout         time.Duration // beside the context's deadline; 0: none
	RandomSeed      uint64
	Priority        int  // -7 to 7
	OutputsOnDevice bool // new outputs stay on the device where the plan makes them
	State           *State
	Skip            []int // places of outputs that are not wanted
}

// runOptions gives them as C takes them, for a context.
func (s *Session) runOptions(bag *bag, options *RunOptions, bound *binding) (C.evn_run_options, error) {
	raw := C.evn_run_options_initial()
	raw.cancel, raw.deadline_ns = bound.token, bound.deadline
	if options == nil {
		return raw, nil
	}
	if options.AllowCopies {
		raw.allow_copies = 1
	}
	if err := setDuration(&raw.timeout_ns, options.Timeout, "Timeout"); err != nil {
		return raw, err
	}
	if err := setInt(&raw.priority, options.Priority, "Priority"); err != nil {
		return raw, err
	}
	raw.random_seed = C.uint64_t(options.RandomSeed)
	if options.OutputsOnDevice {
		raw.flags |= C.EVN_RUN_OUTPUTS_ON_DEVICE
	}
	if options.State != nil {
		state, err := options.State.self().handle()
		if err != nil {
			return raw, err
		}
		raw.state = state
	}
	if len(options.Skip) > 0 {
		skipped := room[C.uint8_t](bag, s.outputs)
		for _, index := range options.Skip {
			if index < 0 || index >= s.outputs {
				return raw, argument("there is no output %d to skip: the model has %d", index, s.outputs)
			}
			skipped[index] = 1
		}
		raw.skipped_outputs = first(skipped)
	}
	return raw, nil
}

// Run runs the model once, with the inputs in the model's order, and gives the outputs in its order. The context's end ends the run.
func (s *Session) Run(ctx context.Context, inputs ...*Tensor) ([]*Tensor, error) {
	return s.RunWith(ctx, nil, inputs, nil)
}

// RunWith is Run with options, and into tensors that there are.
//
//	outputs  nil, or a slot for each output: what is not nil is written in place
func (s *Session) RunWith(ctx context.Context, options *RunOptions, inputs, outputs []*Tensor) ([]*Tensor, error) {
	if _, err := s.self().handle(); err != nil {
		return nil, err
	}
	if outputs == nil {
		outputs = make([]*Tensor, s.outputs)
	}
	from, err := handlesOf(inputs)
	if err != nil {
		return nil, err
	}
	to, err := handlesOf(outputs)
	if err != nil {
		return nil, err
	}
	err = s.runWith(ctx, options, func(raw C.uintptr_t, options *C.evn_run_options, e *C.evn_error) C.evn_status {
		return C.evn_session_run(raw, first(from), C.uint32_t(len(from)), first(to), C.uint32_t(len(to)), options, e)
	})
	runtime.KeepAlive(inputs)
	if err != nil {
		return nil, err
	}
	made := make([]*Tensor, len(outputs))
	for i, output := range outputs {
		if output != nil {
			made[i] = output
		} else if to[i] != 0 {
			made[i] = newTensor(to[i])
		}
	}
	return made, nil
}

// few is the memory of a call with no more tensors than these.
type few struct {
	from, to [8]C.evn_tensor
	e        C.evn_error
}

var fewPool = sync.Pool{New: func() any { return &few{e: C.evn_error_initial()} }}

// put is handlesOf into slots that there are.
func put(slots []C.evn_tensor, tensors []*Tensor) error {
	for i, tensor := range tensors {
		if tensor == nil {
			slots[i] = 0
			continue
		}
		raw, err := tensor.handle()
		if err != nil {
			return err
		}
		slots[i] = raw
	}
	return nil
}

// RunInto runs the model into tensors that there are, one for each output. With a context that cannot be cancelled and up to eight inputs and
// outputs it allocates nothing.
func (s *Session) RunInto(ctx context.Context, inputs, outputs []*Tensor) error {
	for i, output := range outputs {
		if output == nil {
			return argument("there is no tensor for output %d", i)
		}
	}
	if ctx == nil || ctx.Done() != nil || s == nil || len(inputs) > 8 || len(outputs) > 8 {
		_, err := s.RunWith(ctx, nil, inputs, outputs)
		return err
	}
	raw, err := s.object.handle()
	if err != nil {
		return err
	}
	call := fewPool.Get().(*few)
	if err = put(call.from[:], inputs); err == nil {
		err = put(call.to[:], outputs)
	}
	if err == nil {
		status := C.evn_session_run(raw, &call.from[0], C.uint32_t(len(inputs)), &call.to[0], C.uint32_t(len(outputs)), nil, &call.e)
		if status != C.EVN_OK {
			err = errorOf(status, &call.e)
		}
	}
	runtime.KeepAlive(s)
	runtime.KeepAlive(inputs)
	runtime.KeepAlive(outputs)
	fewPool.Put(call)
	return err
}

func (s *Session) runWith(ctx context.Context, options *RunOptions, call func(C.uintptr_t, *C.evn_run_options, *C.evn_error) C.evn_status) error {
	bound, err := bind(ctx, false)
	if err != nil {
		return err
	}
	defer bound.end()
	var bag bag
	defer bag.free()
	raw, err := s.runOptions(&bag, options, bound)
	if err != nil {
		return err
	}
	err = s.self().with(func(of C.uintptr_t, e *C.evn_error) C.evn_status { return call(of, &raw, e) })
	runtime.KeepAlive(options)
	return bound.caused(err)
}

// RunNamed runs the model with inputs by name, and gives the outputs by name.
func (s *Session) RunNamed(ctx context.Context, inputs map[string]*Tensor) (map[string]*Tensor, error) {
	infos, err := s.Inputs()
	if err != nil {
		return nil, err
	}
	given := make([]*Tensor, len(infos))
	for name, tensor := range inputs {
		place, err := s.FindInput(name)
		if err != nil {
			return nil, err
		}
		for place >= len(given) {
			given = append(given, nil) // inputs with a default
		}
		given[place] = tensor
	}
	for i, info := range infos {
		tensor, ok := inputs[info.Name]
		if !ok {
			return nil, argument("input '%s' is missing", info.Name)
		}
		given[i] = tensor
	}
	outputs, err := s.Run(ctx, given...)
	if err != nil {
		return nil, err
	}
	if infos, err = s.Outputs(); err != nil {
		return nil, err
	}
	made := map[string]*Tensor{}
	for i, info := range infos {
		made[info.Name] = outputs[i]
	}
	return made, nil
}

// RunValues is RunWith for models that take or give more than tensors.
func (s *Session) RunValues(ctx context.Context, options *RunOptions, inputs ...*Value) ([]*Value, error) {
	if _, err := s.self().handle(); err != nil {
		return nil, err
	}
	from, err := valueHandles(inputs)
	if err != nil {
		return nil, err
	}
	to := make([]C.evn_value, s.outputs)
	err = s.runWith(ctx, options, func(raw C.uintptr_t, options *C.evn_run_options, e *C.evn_error) C.evn_status {
		return C.evn_session_run_values(raw, first(from), C.uint32_t(len(from)), first(to), C.uint32_t(len(to)), options, e)
	})
	runtime.KeepAlive(inputs)
	if err != nil {
		return nil, err
	}
	return newValues(to), nil
}

package evener

// #include "glue.h"
import "C"

import "unsafe"

// StatePair is an output of the model that is an input of the next run.
type StatePair struct {
	Output, Input string
	Capacity      int64 // 0: the dims stay the same; more: the most positions on the axis on which it grows
}

// StateOptions says how a state is made.
type StateOptions struct {
	OnDemand bool               // memory for positions is taken as they come
	Float16  bool               // pages of float32 values store float16
	Int8     bool               // pages store 8 bits; not together with Float16
	Dims     map[string][]int64 // inputs of pairs whose dims the model leaves open; 0 for the axis that grows
}

// State hands outputs of one run on to inputs of the next: RunOptions.State. One run uses it at a time.
type State struct{ object *object }

func (s *State) self() *object {
	if s == nil {
		return nil
	}
	return s.object
}

// Close ends the hold. It never fails; the second call does nothing.
func (s *State) Close() error { return s.self().Close() }

func releaseState(raw C.uintptr_t) { C.evn_state_release(raw) }

// NewState makes a state of the session; nil: with the zero options.
func (s *Session) NewState(pairs []StatePair, options *StateOptions) (*State, error) {
	var bag bag
	defer bag.free()
	held := room[C.evn_state_pair](&bag, len(pairs))
	var err error
	for i, pair := range pairs {
		if held[i].output, err = bag.text(pair.Output); err != nil {
			return nil, err
		}
		if held[i].input, err = bag.text(pair.Input); err != nil {
			return nil, err
		}
		held[i].capacity = C.int64_t(pair.Capacity)
	}
	raw := C.evn_state_options_initial()
	if options != nil {
		if options.OnDemand {
			raw.flags |= C.EVN_STATE_ON_DEMAND
		}
		if options.Float16 {
			raw.flags |= C.EVN_STATE_FLOAT16
		}
		if options.Int8 {
			raw.flags |= C.EVN_STATE_INT8
		}
		if raw.dims, raw.dim_count, err = bag.shapesOf(options.Dims); err != nil {
			return nil, err
		}
	}
	made, err := s.self().make("state", releaseState, func(of C.uintptr_t, out *C.uintptr_t, e *C.evn_error) C.evn_status {
		return C.evn_state_create(of, first(held), C.uint32_t(len(held)), &raw, out, e)
	})
	if err != nil {
		return nil, err
	}
	return &State{made}, nil
}

// Reset makes it as it was when it was made.
func (s *State) Reset() error {
	return s.self().with(func(raw C.uintptr_t, e *C.evn_error) C.evn_status { return C.evn_state_reset(raw, e) })
}

// Fork makes another state of the same contents, which goes its own way: a beam of a search.
func (s *State) Fork() (*State, error) {
	made, err := s.self().make("state", releaseState, func(raw C.uintptr_t, out *C.uintptr_t, e *C.evn_error) C.evn_status {
		return C.evn_state_fork(raw, out, e)
	})
	if err != nil {
		return nil, err
	}
	return &State{made}, nil
}

// Length gives the positions of the pair at a place.
func (s *State) Length(index int) (int64, error) {
	var place C.uint32_t
	if err := setInt(&place, index, "index"); err != nil {
		return 0, err
	}
	var positions C.int64_t
	err := s.self().with(func(raw C.uintptr_t, e *C.evn_error) C.evn_status {
		return C.evn_state_length(raw, place, &positions, e)
	})
	return int64(positions), err
}

// Truncate cuts pairs with a capacity back to their first positions.
func (s *State) Truncate(positions int64) error {
	return s.self().with(func(raw C.uintptr_t, e *C.evn_error) C.evn_status {
		return C.evn_state_truncate(raw, C.int64_t(positions), e)
	})
}

// Save gives the contents as bytes.
func (s *State) Save() ([]byte, error) {
	var size C.size_t
	if err := s.self().with(func(raw C.uintptr_t, e *C.evn_error) C.evn_status { return C.evn_state_save(raw, nil, 0, &size, e) }); err != nil {
		return nil, err
	}
	return s.self().bytes(int(size)+1, func(raw C.uintptr_t, buffer *C.char, capacity C.size_t, size *C.size_t, e *C.evn_error) C.evn_status {
		return C.evn_state_save(raw, unsafe.Pointer(buffer), capacity, size, e)
	})
}

// Restore puts what Save gave in the place of the contents.
func (s *State) Restore(data []byte) error {
	return s.self().with(func(raw C.uintptr_t, e *C.evn_error) C.evn_status {
		return C.evn_state_restore(raw, unsafe.Pointer(first(data)), C.size_t(len(data)), e)
	})
}

// Describe writes the pairs: names, dims, positions, bytes, how they are held and why.
func (s *State) Describe(format Format) (string, error) {
	return s.self().text(4096, func(raw C.uintptr_t, buffer *C.char, capacity C.size_t, size *C.size_t, e *C.evn_error) C.evn_status {
		return C.evn_state_describe(raw, C.evn_format(format), buffer, capacity, size, e)
	})
}

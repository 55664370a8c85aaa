package evener

// #include "glue.h"
import "C"

import (
	"context"
	"errors"
	"runtime"
	"time"
)

// Choices of SessionOptions, as in the C API; 0 of each: as the configuration says.
const (
	PrecisionFP32 = C.EVN_PRECISION_FP32
	PrecisionBF16 = C.EVN_PRECISION_BF16
	PrecisionFP16 = C.EVN_PRECISION_FP16
	PrecisionAuto = C.EVN_PRECISION_AUTO

	NumericsFast   = C.EVN_NUMERICS_FAST
	NumericsStrict = C.EVN_NUMERICS_STRICT

	ProductsOwn      = C.EVN_PRODUCTS_OWN
	ProductsOpenBLAS = C.EVN_PRODUCTS_OPENBLAS
	ProductsCLBlast  = C.EVN_PRODUCTS_CLBLAST
	ProductsAuto     = C.EVN_PRODUCTS_AUTO
	ProductsMeasured = C.EVN_PRODUCTS_MEASURED

	MemoryFast  = C.EVN_MEMORY_PLAN_FAST
	MemorySmall = C.EVN_MEMORY_PLAN_SMALL

	ArenasOwn    = C.EVN_ARENAS_OWN
	ArenasShared = C.EVN_ARENAS_SHARED
)

// Batching says how requests are joined to batches.
type Batching struct {
	MaxBatch int // rows of a batch at most; 0: 8
	MaxDelay time.Duration
	Mask     string  // the model's input of 1 for what counts and 0 for padding, or ""
	Buckets  []int64 // lengths in rising order; needs Mask
}

// SessionOptions says how a session is made. The zero value is as the configuration says.
type SessionOptions struct {
	Device         string // of nodes that no rule places, or several with commas between them; "auto"
	Name           string // what statistics call it
	CacheFile      string // where packed weights are kept from one process to the next
	CacheReadOnly  bool
	CacheMap       bool
	Precision      int32
	Numerics       int32
	Products       int32
	Memory         int32
	Arenas         int32
	KeepFP32       []string // nodes that stay float32: globs of their names, or "type:Softmax"
	DisabledPasses []string
	Concurrency    int // how many runs compute at a time at most; 0: the configuration's
	IdleArenaBytes uint64
	ArenaLimit     uint64 // limit of the intermediate values of a run: what does not fit is computed again; 0: none
	Batching       *Batching
	Overridable    []string // inputs with a default that runs are going to give
}

// Session is a model that is placed and compiled on devices. Several goroutines may run it at a time.
type Session struct {
	object          *object
	inputs, outputs int
}

func (s *Session) self() *object {
	if s == nil {
		return nil
	}
	return s.object
}

// Close ends the hold; runs and requests that are under way go on. It never fails; the second call does nothing.
func (s *Session) Close() error { return s.self().Close() }

func releaseSession(raw C.uintptr_t) { C.evn_session_release(raw) }

func newSession(made *object) (*Session, error) {
	session := &Session{object: made}
	var err error
	session.inputs, err = countBy(made, func(raw C.uintptr_t, count *C.uint32_t, e *C.evn_error) C.evn_status {
		return C.evn_session_input_count(raw, count, e)
	})
	if err == nil {
		session.outputs, err = countBy(made, func(raw C.uintptr_t, count *C.uint32_t, e *C.evn_error) C.evn_status {
			return C.evn_session_output_count(raw, count, e)
		})
	}
	if err != nil {
		made.Close()
		return nil, err
	}
	return session, nil
}

func (b *bag) session(options *SessionOptions) (raw C.evn_session_options, err error) {
	raw = C.evn_session_options_initial()
	for _, text := range []struct {
		to   **C.char
		from string
	}{{&raw.device, options.Device}, {&raw.name, options.Name}, {&raw.cache_file, options.CacheFile}} {
		if *text.to, err = b.optional(text.from); err != nil {
			return raw, err
		}
	}
	if options.CacheReadOnly {
		raw.cache_flags |= C.EVN_CACHE_READ_ONLY
	}
	if options.CacheMap {
		raw.cache_flags |= C.EVN_CACHE_MAP
	}
	raw.precision, raw.numerics, raw.products = C.evn_precision(options.Precision), C.evn_numerics(options.Numerics), C.evn_products(options.Products)
	raw.memory, raw.arenas = C.evn_memory_plan(options.Memory), C.evn_arenas(options.Arenas)
	raw.idle_arena_bytes, raw.arena_limit = C.uint64_t(options.IdleArenaBytes), C.uint64_t(options.ArenaLimit)
	if err = setInt(&raw.concurrency, options.Concurrency, "Concurrency"); err != nil {
		return raw, err
	}
	if raw.keep_fp32, err = b.texts(options.KeepFP32); err != nil {
		return raw, err
	}
	if raw.disabled_passes, err = b.texts(options.DisabledPasses); err != nil {
		return raw, err
	}
	raw.keep_fp32_count, raw.disabled_pass_count = C.uint32_t(len(options.KeepFP32)), C.uint32_t(len(options.DisabledPasses))
	if raw.overridable, err = b.texts(options.Overridable); err != nil {
		return raw, err
	}
	raw.overridable_count = C.uint32_t(len(options.Overridable))
	if batching := options.Batching; batching != nil {
		made := room[C.evn_batching_options](b, 1)
		made[0] = C.evn_batching_options_initial()
		if batching.MaxBatch != 0 {
			if err = setInt(&made[0].max_batch, batching.MaxBatch, "MaxBatch"); err != nil {
				return raw, err
			}
		}
		if err = setDuration(&made[0].max_delay_ns, batching.MaxDelay, "MaxDelay"); err != nil {
			return raw, err
		}
		if made[0].mask, err = b.optional(batching.Mask); err != nil {
			return raw, err
		}
		buckets := room[C.int64_t](b, len(batching.Buckets))
		for i, length := range batching.Buckets {
			buckets[i] = C.int64_t(length)
		}
		made[0].buckets, made[0].bucket_count = first(buckets), C.uint32_t(len(buckets))
		raw.batching = &made[0]
	}
	return raw, nil
}

// NewSession places a model on the runtime's devices, as the configuration's rules say; nil: with the zero options.
func (r *Runtime) NewSession(ctx context.Context, model *Model, options *SessionOptions) (*Session, error) {
	if options == nil {
		options = &SessionOptions{}
	}
	of, err := model.self().handle()
	if err != nil {
		return nil, err
	}
	var bag bag
	defer bag.free()
	raw, err := bag.session(options)
	if err != nil {
		return nil, err
	}
	bound, err := bind(ctx, false)
	if err != nil {
		return nil, err
	}
	defer bound.end()
	raw.cancel, raw.deadline_ns = bound.token, bound.deadline
	made, err := r.self().make("session", releaseSession, func(from C.uintptr_t, out *C.uintptr_t, e *C.evn_error) C.evn_status {
		return C.evn_session_create(from, of, &raw, out, e)
	})
	runtime.KeepAlive(model)
	if err != nil {
		return nil, bound.caused(err)
	}
	return newSession(made)
}

// Finish closes the session and waits until all requests that were submitted to it have ended. Where the context ends first, by its
// deadline or because it is cancelled, the session is closed all the same, and requests go on.
func (s *Session) Finish(ctx context.Context) error {
	if ctx == nil {
		return noContext()
	}
	raw, err := s.self().take()
	if err != nil {
		return err
	}
	timeout := C.uint64_t(1<<64 - 1)
	if ctx.Err() != nil {
		timeout = 0
	} else if deadline, ok := ctx.Deadline(); ok {
		timeout = 0
		if left := time.Until(deadline); left > 0 {
			timeout = C.uint64_t(left)
		}
	}
	finish := func() error {
		err := check(func(e *C.evn_error) C.evn_status { return C.evn_session_finish(raw, timeout, e) })
		if err != nil && !errors.Is(err, Timeout) {
			s.object.raw.Store(uintptr(raw)) // nothing has happened: the handle is still the session's
		}
		return err
	}
	if ctx.Done() == nil || timeout == 0 {
		return ended(ctx, finish())
	}
	// The library knows no token here, and the handle ends with the call: a goroutine waits in it, until the requests end at the latest.
	done := make(chan error, 1)
	go func() { done <- finish() }()
	select {
	case err = <-done:
		return ended(ctx, err)
	case <-ctx.Done():
	}
	select {
	case err = <-done: // both at once: what the library says counts
		return ended(ctx, err)
	default:
		return &Error{Status: statusOf(ctx.Err()), Message: "requests of the session have not ended; they go on", cause: ctx.Err()}
	}
}

// ended says of a wait that timed out that the context ended it.
func ended(ctx context.Context, err error) error {
	if !errors.Is(err, Timeout) || ctx.Err() == nil {
		return (&binding{ctx: ctx}).caused(err)
	}
	return &Error{Status: statusOf(ctx.Err()), Message: err.(*Error).Message, cause: ctx.Err()}
}

// inputsFrom gives `count` inputs from index `from` on; those with a default follow the others.
func (s *Session) inputsFrom(from, count int) ([]ValueInfo, error) {
	return infosOf(s.self(), from, count,
		func(raw C.uintptr_t, index C.uint32_t, info *C.evn_value_info, e *C.evn_error) C.evn_status {
			return C.evn_session_get_input_info(raw, index, info, e)
		},
		func(raw C.uintptr_t, index C.uint32_t, buffer *C.char, capacity C.size_t, size *C.size_t, e *C.evn_error) C.evn_status {
			return C.evn_session_input_name(raw, index, buffer, capacity, size, e)
		}, nil)
}

// Inputs gives the inputs in the order of Run.
func (s *Session) Inputs() ([]ValueInfo, error) {
	if _, err := s.self().handle(); err != nil {
		return nil, err
	}
	return s.inputsFrom(0, s.inputs)
}

// Defaults gives the inputs that need not be given, since they have a default: they follow the others in the order of Run, where nil stands for a
// default.
func (s *Session) Defaults() ([]ValueInfo, error) {
	count, err := countBy(s.self(), func(raw C.uintptr_t, count *C.uint32_t, e *C.evn_error) C.evn_status {
		return C.evn_session_default_count(raw, count, e)
	})
	if err != nil {
		return nil, err
	}
	return s.inputsFrom(s.inputs, count)
}

// Outputs gives the outputs in the order of Run.
func (s *Session) Outputs() ([]ValueInfo, error) {
	if _, err := s.self().handle(); err != nil {
		return nil, err
	}
	return infosOf(s.self(), 0, s.outputs,
		func(raw C.uintptr_t, index C.uint32_t, info *C.evn_value_info, e *C.evn_error) C.evn_status {
			return C.evn_session_get_output_info(raw, index, info, e)
		},
		func(raw C.uintptr_t, index C.uint32_t, buffer *C.char, capacity C.size_t, size *C.size_t, e *C.evn_error) C.evn_status {
			return C.evn_session_output_name(raw, index, buffer, capacity, size, e)
		}, nil)
}

// FindInput gives the place of the input of a name; the error lists the names there are.
func (s *Session) FindInput(name string) (int, error) {
	return find(s, name, func(raw C.uintptr_t, text *C.char, index *C.uint32_t, e *C.evn_error) C.evn_status {
		return C.evn_session_find_input(raw, text, index, e)
	})
}

// FindOutput gives the place of the output of a name; the error lists the names there are.
func (s *Session) FindOutput(name string) (int, error) {
	return find(s, name, func(raw C.uintptr_t, text *C.char, index *C.uint32_t, e *C.evn_error) C.evn_status {
		return C.evn_session_find_output(raw, text, index, e)
	})
}

func find(s *Session, name string, call func(C.uintptr_t, *C.char, *C.uint32_t, *C.evn_error) C.evn_status) (int, error) {
	var bag bag
	defer bag.free()
	text, err := bag.text(name)
	if err != nil {
		return 0, err
	}
	var index C.uint32_t
	err = s.self().with(func(raw C.uintptr_t, e *C.evn_error) C.evn_status { return call(raw, text, &index, e) })
	return int(index), err
}

// Explain writes the placement: for each node its device, kernel, reason and the configuration's line.
func (s *Session) Explain(format Format) (string, error) {
	return s.self().text(1<<14, func(raw C.uintptr_t, buffer *C.char, capacity C.size_t, size *C.size_t, e *C.evn_error) C.evn_status {
		return C.evn_session_explain(raw, C.evn_format(format), buffer, capacity, size, e)
	})
}

// Compare runs two sessions over the same inputs, and writes how far their outputs are apart and how long each takes.
func (s *Session) Compare(other *Session, inputs []*Tensor, format Format) (string, error) {
	of, err := other.self().handle()
	if err != nil {
		return "", err
	}
	handles, err := handlesOf(inputs)
	if err != nil {
		return "", err
	}
	text, err := s.self().text(1<<14, func(raw C.uintptr_t, buffer *C.char, capacity C.size_t, size *C.size_t, e *C.evn_error) C.evn_status {
		return C.evn_session_compare(raw, of, first(handles), C.uint32_t(len(handles)), C.evn_format(format), buffer, capacity, size, e)
	})
	runtime.KeepAlive(inputs)
	runtime.KeepAlive(other)
	return text, err
}

// Statistics writes what runs and requests have come to so far.
func (s *Session) Statistics(format Format) (string, error) {
	return s.self().text(1<<14, func(raw C.uintptr_t, buffer *C.char, capacity C.size_t, size *C.size_t, e *C.evn_error) C.evn_status {
		return C.evn_session_get_statistics(raw, C.evn_format(format), buffer, capacity, size, e)
	})
}

// SessionMemory is what a session holds, in bytes; weights are its model's.
type SessionMemory struct {
	ArenaBytes, IdleArenaBytes, PeakArenaBytes      uint64
	Arenas, ArenasMade, ArenasReused, ArenasDropped uint64
	Plans, PlanBytes, StateBytes                    uint64
}

// MemoryStats gives it.
func (s *Session) MemoryStats() (*SessionMemory, error) {
	stats := C.evn_session_memory_stats_initial()
	if err := s.self().with(func(raw C.uintptr_t, e *C.evn_error) C.evn_status {
		return C.evn_session_get_memory_stats(raw, &stats, e)
	}); err != nil {
		return nil, err
	}
	return &SessionMemory{
		ArenaBytes: uint64(stats.arena_bytes), IdleArenaBytes: uint64(stats.idle_arena_bytes), PeakArenaBytes: uint64(stats.peak_arena_bytes),
		Arenas: uint64(stats.arena_count), ArenasMade: uint64(stats.arenas_made), ArenasReused: uint64(stats.arenas_reused),
		ArenasDropped: uint64(stats.arenas_dropped), Plans: uint64(stats.plan_count), PlanBytes: uint64(stats.plan_bytes),
		StateBytes: uint64(stats.state_bytes),
	}, nil
}

// TraceStart has each run from now on record its steps, into room for so many events.
func (s *Session) TraceStart(events int) error {
	var capacity C.uint32_t
	if err := setInt(&capacity, events, "events"); err != nil {
		return err
	}
	return s.self().with(func(raw C.uintptr_t, e *C.evn_error) C.evn_status {
		return C.evn_session_trace_start(raw, capacity, e)
	})
}

// TraceStop ends recording.
func (s *Session) TraceStop() error {
	return s.self().with(func(raw C.uintptr_t, e *C.evn_error) C.evn_status { return C.evn_session_trace_stop(raw, e) })
}

// Trace writes what has been recorded so far; JSON is for Chrome's and Perfetto's viewers.
func (s *Session) Trace(format Format) (string, error) {
	return s.self().text(1<<16, func(raw C.uintptr_t, buffer *C.char, capacity C.size_t, size *C.size_t, e *C.evn_error) C.evn_status {
		return C.evn_session_get_trace(raw, C.evn_format(format), buffer, capacity, size, e)
	})
}

// handlesOf gives the handles of tensors; nil is one that a state or the library gives.
func handlesOf(tensors []*Tensor) ([]C.evn_tensor, error) {
	made := make([]C.evn_tensor, len(tensors))
	for i, tensor := range tensors {
		if tensor == nil {
			continue
		}
		raw, err := tensor.handle()
		if err != nil {
			return nil, err
		}
		made[i] = raw
	}
	return made, nil
}

package evener

// #include "glue.h"
import "C"

import (
	"context"
	"runtime"
	"runtime/cgo"
)

// pending is what the callback and the request know of a run.
type pending struct {
	bound *binding
	done  chan struct{}
}

//export evenerDone
func evenerDone(user C.uintptr_t) {
	handle := cgo.Handle(user)
	of := handle.Value().(*pending)
	handle.Delete()
	of.bound.end()
	close(of.done)
}

// request is one asynchronous run.
type request struct {
	object  *object
	pending *pending
	outputs int
}

// Request is an asynchronous run that gives tensors. The library keeps its inputs: they may be closed, but not written, before it
// has ended. Close cancels a run that has not ended, and so does the collector where the request is forgotten.
type Request struct{ request *request }

// ValueRequest is an asynchronous run that gives values.
type ValueRequest struct{ request *request }

func releaseRequest(raw C.uintptr_t) { C.evn_request_release(raw) }

// asked gives the run of a request, which for one that was not made by this package is one that has ended and is an error to take.
func (r *Request) asked() *request {
	if r == nil || r.request == nil {
		return noRequest
	}
	return r.request
}

func (r *ValueRequest) asked() *request {
	if r == nil || r.request == nil {
		return noRequest
	}
	return r.request
}

var noRequest = func() *request {
	made := &request{pending: &pending{done: make(chan struct{})}}
	close(made.pending.done)
	return made
}()

// Done is closed when the run has ended, in whatever way.
func (r *Request) Done() <-chan struct{} { return r.asked().pending.done }

// Done is closed when the run has ended, in whatever way.
func (r *ValueRequest) Done() <-chan struct{} { return r.asked().pending.done }

// Close ends the hold, and cancels a run that has not ended. It never fails; the second call does nothing.
func (r *Request) Close() error { return r.asked().object.Close() }

// Close ends the hold, and cancels a run that has not ended. It never fails; the second call does nothing.
func (r *ValueRequest) Close() error { return r.asked().object.Close() }

// wait waits for the end, or for that of a context, which ends the waiting alone.
func (r *request) wait(ctx context.Context) error {
	if _, err := r.object.handle(); err != nil {
		return err
	}
	if ctx == nil {
		return noContext()
	}
	select {
	case <-r.pending.done:
		return nil
	default:
	}
	select {
	case <-r.pending.done:
		return nil
	case <-ctx.Done():
		return &Error{Status: statusOf(ctx.Err()), Message: "the run has not ended; it goes on", cause: ctx.Err()}
	}
}

func (s *Session) submit(ctx context.Context, options *RunOptions, call func(C.uintptr_t, *C.evn_run_options, *C.evn_submit_options, *C.evn_request, *C.evn_error) C.evn_status) (*request, error) {
	if _, err := s.self().handle(); err != nil {
		return nil, err
	}
	bound, err := bind(ctx, true)
	if err != nil {
		return nil, err
	}
	var bag bag
	defer bag.free()
	raw, err := s.runOptions(&bag, options, bound)
	if err != nil {
		bound.end()
		return nil, err
	}
	of := &pending{bound: bound, done: make(chan struct{})}
	user := cgo.NewHandle(of)
	submit := C.evn_submit_options_initial()
	submit.done, submit.user = C.evn_request_done(C.evn_go_done), C.uintptr_t(user)
	// What is closed or forgotten before its end is cancelled: the callback holds `of`, and not the object.
	release := func(raw C.uintptr_t) {
		bound.cancel()
		releaseRequest(raw)
	}
	made, err := s.self().make("request", release, func(from C.uintptr_t, out *C.uintptr_t, e *C.evn_error) C.evn_status {
		return call(from, &raw, &submit, out, e)
	})
	runtime.KeepAlive(options)
	if err != nil {
		user.Delete()
		bound.end()
		return nil, bound.caused(err)
	}
	return &request{made, of, s.outputs}, nil
}

// Submit has threads of the library run the model, and returns at once. The context's end ends the run.
func (s *Session) Submit(ctx context.Context, options *RunOptions, inputs ...*Tensor) (*Request, error) {
	from, err := handlesOf(inputs)
	if err != nil {
		return nil, err
	}
	made, err := s.submit(ctx, options, func(raw C.uintptr_t, options *C.evn_run_options, submit *C.evn_submit_options, out *C.evn_request, e *C.evn_error) C.evn_status {
		return C.evn_session_submit(raw, first(from), C.uint32_t(len(from)), nil, C.uint32_t(s.outputs), options, submit, out, e)
	})
	runtime.KeepAlive(inputs)
	if err != nil {
		return nil, err
	}
	return &Request{made}, nil
}

// SubmitValues is Submit for models that take or give more than tensors.
func (s *Session) SubmitValues(ctx context.Context, options *RunOptions, inputs ...*Value) (*ValueRequest, error) {
	from, err := valueHandles(inputs)
	if err != nil {
		return nil, err
	}
	made, err := s.submit(ctx, options, func(raw C.uintptr_t, options *C.evn_run_options, submit *C.evn_submit_options, out *C.evn_request, e *C.evn_error) C.evn_status {
		return C.evn_session_submit_values(raw, first(from), C.uint32_t(len(from)), nil, C.uint32_t(s.outputs), options, submit, out, e)
	})
	runtime.KeepAlive(inputs)
	if err != nil {
		return nil, err
	}
	return &ValueRequest{made}, nil
}

// Wait waits for the run's end and gives its outputs, once. The context ends the waiting alone: the run goes on, and may be waited
// for again; the context of Submit and Close end the run.
func (r *Request) Wait(ctx context.Context) ([]*Tensor, error) {
	of := r.asked()
	if err := of.wait(ctx); err != nil {
		return nil, err
	}
	to := make([]C.evn_tensor, of.outputs)
	err := of.object.with(func(raw C.uintptr_t, e *C.evn_error) C.evn_status {
		return C.evn_request_take(raw, first(to), C.uint32_t(len(to)), e)
	})
	if err != nil {
		return nil, of.pending.bound.caused(err)
	}
	made := make([]*Tensor, len(to))
	for i, raw := range to {
		if raw != 0 {
			made[i] = newTensor(raw)
		}
	}
	return made, nil
}

// Wait is Request.Wait for values.
func (r *ValueRequest) Wait(ctx context.Context) ([]*Value, error) {
	of := r.asked()
	if err := of.wait(ctx); err != nil {
		return nil, err
	}
	to := make([]C.evn_value, of.outputs)
	err := of.object.with(func(raw C.uintptr_t, e *C.evn_error) C.evn_status {
		return C.evn_request_take_values(raw, first(to), C.uint32_t(len(to)), e)
	})
	if err != nil {
		return nil, of.pending.bound.caused(err)
	}
	return newValues(to), nil
}

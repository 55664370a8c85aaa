package evener

// #include "glue.h"
import "C"

import (
	"runtime"
	"runtime/cgo"
	"sync/atomic"
)

// object owns a handle of the library. A handle is a slot and a generation: one that has been released is an error, never another
// object, and the library lets calls that are under way end. Types reach theirs by self(), which gives nil where there is none: all
// but Close is an error then.
type object struct {
	raw     atomic.Uintptr
	what    string
	release func(C.uintptr_t)
}

func own(what string, raw C.uintptr_t, release func(C.uintptr_t)) *object {
	made := &object{what: what, release: release}
	made.raw.Store(uintptr(raw))
	runtime.SetFinalizer(made, (*object).Close)
	return made
}

// Close ends the hold. What was made of it goes on, as far as it is in use. It never fails; the second call does nothing.
func (o *object) Close() error {
	if o == nil {
		return nil
	}
	if raw := o.raw.Swap(0); raw != 0 {
		runtime.SetFinalizer(o, nil)
		o.release(C.uintptr_t(raw))
	}
	return nil
}

func (o *object) handle() (C.uintptr_t, error) {
	if o == nil {
		return 0, &Error{Status: InvalidHandle, Message: "an object that was not made by this package's functions"}
	}
	raw := o.raw.Load()
	if raw == 0 {
		return 0, &Error{Status: InvalidHandle, Message: "the " + o.what + " is closed"}
	}
	return C.uintptr_t(raw), nil
}

// take gives the handle to a function that ends it.
func (o *object) take() (C.uintptr_t, error) {
	if _, err := o.handle(); err != nil {
		return 0, err
	}
	if raw := o.raw.Swap(0); raw != 0 {
		return C.uintptr_t(raw), nil
	}
	return o.handle() // closed meanwhile
}

// with calls a function with the handle.
func (o *object) with(call func(C.uintptr_t, *C.evn_error) C.evn_status) error {
	raw, err := o.handle()
	if err == nil {
		err = check(func(e *C.evn_error) C.evn_status { return call(raw, e) })
	}
	runtime.KeepAlive(o)
	return err
}

// make calls a function that makes another object of this one.
func (o *object) make(what string, release func(C.uintptr_t), call func(raw C.uintptr_t, out *C.uintptr_t, e *C.evn_error) C.evn_status) (*object, error) {
	var made C.uintptr_t
	if err := o.with(func(raw C.uintptr_t, e *C.evn_error) C.evn_status { return call(raw, &made, e) }); err != nil {
		return nil, err
	}
	return own(what, made, release), nil
}

type ownWriter func(raw C.uintptr_t, buffer *C.char, capacity C.size_t, size *C.size_t, e *C.evn_error) C.evn_status

// bytes reads what a function writes of this object.
func (o *object) bytes(first int, call ownWriter) ([]byte, error) {
	raw, err := o.handle()
	if err != nil {
		return nil, err
	}
	bytes, err := readBytes(first, func(buffer *C.char, capacity C.size_t, size *C.size_t, e *C.evn_error) C.evn_status {
		return call(raw, buffer, capacity, size, e)
	})
	runtime.KeepAlive(o)
	return bytes, err
}

// text reads a text that a function writes of this object.
func (o *object) text(first int, call ownWriter) (string, error) {
	raw, err := o.handle()
	if err != nil {
		return "", err
	}
	text, err := readText(first, func(buffer *C.char, capacity C.size_t, size *C.size_t, e *C.evn_error) C.evn_status {
		return call(raw, buffer, capacity, size, e)
	})
	runtime.KeepAlive(o)
	return text, err
}

// valueOf gives what a callback was handed.
func valueOf(user C.uintptr_t) any { return cgo.Handle(user).Value() }

//export evenerRelease
func evenerRelease(user C.uintptr_t) { cgo.Handle(user).Delete() }

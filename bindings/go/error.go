package evener

// #include <stdlib.h>
// #include "glue.h"
import "C"

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// Status says what a call came to. It is an error, for errors.Is(err, evener.Timeout). Later libraries may have more.
type Status int32

// The statuses of the C API.
const (
	InvalidArgument   Status = C.EVN_ERROR_INVALID_ARGUMENT
	InvalidHandle     Status = C.EVN_ERROR_INVALID_HANDLE // what was used is closed
	InvalidModel      Status = C.EVN_ERROR_INVALID_MODEL
	Unsupported       Status = C.EVN_ERROR_UNSUPPORTED
	Limit             Status = C.EVN_ERROR_LIMIT
	OutOfMemory       Status = C.EVN_ERROR_OUT_OF_MEMORY
	IO                Status = C.EVN_ERROR_IO
	WrongConfig       Status = C.EVN_ERROR_CONFIG
	DeviceUnavailable Status = C.EVN_ERROR_DEVICE_UNAVAILABLE
	DeviceLost        Status = C.EVN_ERROR_DEVICE_LOST
	Timeout           Status = C.EVN_ERROR_TIMEOUT
	Cancelled         Status = C.EVN_ERROR_CANCELLED
	NoThreads         Status = C.EVN_ERROR_NO_THREADS
	WrongState        Status = C.EVN_ERROR_WRONG_STATE
	OtherVersion      Status = C.EVN_ERROR_VERSION
	BufferTooSmall    Status = C.EVN_ERROR_BUFFER_TOO_SMALL
	Internal          Status = C.EVN_ERROR_INTERNAL
	Busy              Status = C.EVN_ERROR_BUSY
	Forked            Status = C.EVN_ERROR_FORKED
)

var statusNames = map[Status]string{
	InvalidArgument: "invalid argument", InvalidHandle: "invalid handle", InvalidModel: "invalid model", Unsupported: "unsupported",
	Limit: "limit", OutOfMemory: "out of memory", IO: "input or output", WrongConfig: "configuration",
	DeviceUnavailable: "device unavailable", DeviceLost: "device lost", Timeout: "timeout", Cancelled: "cancelled",
	NoThreads: "no threads", WrongState: "wrong state", OtherVersion: "version", BufferTooSmall: "buffer too small",
	Internal: "internal", Busy: "busy", Forked: "forked",
}

func (s Status) Error() string {
	if name, ok := statusNames[s]; ok {
		return name
	}
	return fmt.Sprintf("status %d", int32(s))
}

// Error says where and why a call failed.
type Error struct {
	Status         Status
	Message        string // one line
	Node           string // the graph node concerned, or ""
	Device         string // the device concerned, or ""
	BytesRequested uint64 // for memory, limits and buffers: bytes asked for, else 0
	BytesAvailable uint64 // for memory and limits: bytes that were left, else 0
	cause          error  // of the context that ended it
}

func (e *Error) Error() string {
	text := e.Status.Error() + ": " + e.Message
	if e.Node != "" {
		text += " [node " + e.Node + "]"
	}
	if e.Device != "" {
		text += " [device " + e.Device + "]"
	}
	return text
}

// Is says whether the target is this status.
func (e *Error) Is(target error) bool {
	status, ok := target.(Status)
	return ok && status == e.Status
}

// Unwrap gives the error of the context that ended the call, or nil.
func (e *Error) Unwrap() error { return e.cause }

func argument(format string, values ...any) error {
	return &Error{Status: InvalidArgument, Message: fmt.Sprintf(format, values...)}
}

// setInt sets a number of C. A value that the C type cannot represent is an error.
func setInt[T ~int32 | ~uint32](to *T, value int, name string) error {
	if int64(T(value)) != int64(value) {
		return argument("%s is %d", name, value)
	}
	*to = T(value)
	return nil
}

// setDuration sets a number of nanoseconds. A negative duration is an error.
func setDuration(to *C.uint64_t, value time.Duration, name string) error {
	if value < 0 {
		return argument("%s is %v", name, value)
	}
	*to = C.uint64_t(value)
	return nil
}

// textOf gives the text of an array that ends in NUL, or at its end.
func textOf(chars []C.char) string {
	bytes := make([]byte, 0, len(chars))
	for _, char := range chars {
		if char == 0 {
			break
		}
		bytes = append(bytes, byte(char))
	}
	return strings.ToValidUTF8(string(bytes), "\uFFFD")
}

// An evn_error is some 700 bytes, which each call would take anew.
type pool interface {
	Get() any
	Put(any)
}

// errorPool is replaced by tests, while goroutines of earlier ones may still end.
var errorPool atomic.Pointer[pool]

func init() { setErrorPool(&sync.Pool{New: newError}) }

func setErrorPool(p pool) { errorPool.Store(&p) }

func newError() any {
	made := new(C.evn_error)
	*made = C.evn_error_initial()
	return made
}

// check calls a function that takes an error, and gives that where it fails.
func check(call func(*C.evn_error) C.evn_status) error {
	errors := *errorPool.Load()
	e := errors.Get().(*C.evn_error)
	status := call(e)
	if status == C.EVN_OK {
		errors.Put(e)
		return nil
	}
	made := errorOf(status, e)
	errors.Put(e)
	return made
}

// errorOf gives what a call that failed has written, and makes the struct what it was before.
func errorOf(status C.evn_status, e *C.evn_error) *Error {
	made := &Error{
		Status: Status(status), Message: textOf(e.message[:]), Node: textOf(e.node[:]), Device: textOf(e.device[:]),
		BytesRequested: uint64(e.bytes_requested), BytesAvailable: uint64(e.bytes_available),
	}
	*e = C.evn_error_initial()
	return made
}

type writer func(buffer *C.char, capacity C.size_t, size *C.size_t, e *C.evn_error) C.evn_status

// readBytes calls a function that writes bytes, first with room for `first`, until they fit: what is written may grow meanwhile.
// They end in a NUL where the function writes one.
func readBytes(first int, call writer) ([]byte, error) {
	buffer := make([]byte, first)
	for {
		var size C.size_t
		err := check(func(e *C.evn_error) C.evn_status {
			return call((*C.char)(unsafe.Pointer(&buffer[0])), C.size_t(len(buffer)), &size, e)
		})
		if err == nil {
			return buffer[:size], nil
		}
		failed := err.(*Error)
		if failed.Status != BufferTooSmall || failed.BytesRequested <= uint64(len(buffer)) || failed.BytesRequested > 1<<40 {
			return nil, err
		}
		buffer = make([]byte, failed.BytesRequested)
	}
}

func readText(first int, call writer) (string, error) {
	bytes, err := readBytes(first, call)
	if err != nil || len(bytes) == 0 {
		return "", err
	}
	return string(bytes[:len(bytes)-1]), nil
}

// bag holds memory of C for the time of a call: no struct that C gets may point into Go's.
type bag struct{ held []unsafe.Pointer }

func (b *bag) free() {
	for _, held := range b.held {
		C.free(held)
	}
	b.held = nil
}

func (b *bag) text(text string) (*C.char, error) {
	if strings.IndexByte(text, 0) >= 0 {
		return nil, argument("there is a NUL in %q", text)
	}
	made := C.CString(text)
	b.held = append(b.held, unsafe.Pointer(made))
	return made, nil
}

// optional gives NULL for "".
func (b *bag) optional(text string) (*C.char, error) {
	if text == "" {
		return nil, nil
	}
	return b.text(text)
}

func (b *bag) bytes(data []byte) unsafe.Pointer {
	if len(data) == 0 {
		return nil
	}
	made := C.CBytes(data)
	b.held = append(b.held, made)
	return made
}

// room gives memory for `count` values, all zero, or NULL for none.
func room[T any](b *bag, count int) []T {
	if count == 0 {
		return nil
	}
	var one T
	made := C.calloc(C.size_t(count), C.size_t(unsafe.Sizeof(one)))
	b.held = append(b.held, made)
	return unsafe.Slice((*T)(made), count)
}

func first[T any](values []T) *T {
	if len(values) == 0 {
		return nil
	}
	return &values[0]
}

func (b *bag) texts(texts []string) (**C.char, error) {
	made := room[*C.char](b, len(texts))
	for i, text := range texts {
		at, err := b.text(text)
		if err != nil {
			return nil, err
		}
		made[i] = at
	}
	return first(made), nil
}

// binding is a context as the library knows it: a token and a deadline.
type binding struct {
	ctx      context.Context
	token    C.evn_cancel
	deadline C.uint64_t
	quit     chan struct{}
	told     chan struct{} // closed when the library knows that the context has ended
}

// bind makes them; `always` a token too where the context cannot be cancelled.
func bind(ctx context.Context, always bool) (*binding, error) {
	if ctx == nil {
		return nil, noContext()
	}
	b := &binding{ctx: ctx}
	if err := ctx.Err(); err != nil {
		return nil, b.caused(&Error{Status: statusOf(err), Message: "the context has ended: " + err.Error()})
	}
	if ctx.Done() == nil && !always {
		return b, nil
	}
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		if left < 0 {
			left = 0
		}
		b.deadline = C.evn_go_now() + C.uint64_t(left)
	}
	if err := check(func(e *C.evn_error) C.evn_status { return C.evn_cancel_create(&b.token, e) }); err != nil {
		return nil, err
	}
	if ctx.Done() != nil {
		token, quit, told := b.token, make(chan struct{}), make(chan struct{})
		b.quit, b.told = quit, told
		go func() {
			select {
			case <-ctx.Done():
				C.evn_cancel_request(token)
				close(told)
			case <-quit:
			}
		}()
	}
	return b, nil
}

func noContext() error { return argument("there is no context: it is nil") }

func statusOf(err error) Status {
	if err == context.DeadlineExceeded {
		return Timeout
	}
	return Cancelled
}

// cancel asks what has the token to stop.
func (b *binding) cancel() { C.evn_cancel_request(b.token) }

// end gives the token back; the work that has it may go on.
func (b *binding) end() {
	if b.quit != nil {
		close(b.quit)
		b.quit = nil
	}
	if b.token != 0 { // without one no function of the library's may have been called yet, and none be there
		C.evn_cancel_release(b.token)
	}
}

// caused says of an error that the context ended the call, where it did.
func (b *binding) caused(err error) error {
	failed, ok := err.(*Error)
	if !ok || (failed.Status != Timeout && failed.Status != Cancelled) {
		return err
	}
	failed.cause = b.ctx.Err()
	if deadline, ok := b.ctx.Deadline(); failed.cause == nil && failed.Status == Timeout && ok && !time.Now().Before(deadline) {
		failed.cause = context.DeadlineExceeded // the context's timer has not rung yet
	}
	return err
}

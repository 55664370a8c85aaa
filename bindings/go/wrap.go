//go:build go1.21 && !evener_copy

package evener

// #include "glue.h"
import "C"

import (
	"runtime"
	"runtime/cgo"
	"unsafe"
)

// pinned keeps a slice where it is, and reachable.
type pinned struct{ pinner runtime.Pinner }

//export evenerDelete
func evenerDelete(user C.uintptr_t) {
	handle := cgo.Handle(user)
	handle.Value().(*pinned).pinner.Unpin()
	handle.Delete()
}

// Wraps says whether Wrap has the tensor over the slice itself, and not over a copy.
const Wraps = true

// Wrap makes a tensor of the CPU device over the slice, which stays pinned until the last use of it has ended: runs read and write
// the slice's own memory, and who writes it sees to the order. With Go before 1.21, which cannot pin, it is copied.
func Wrap[T Element](r *Runtime, data []T, dims ...int64) (*Tensor, error) {
	count, err := countOf(dims)
	if err != nil || count != len(data) {
		return nil, argument("%d elements do not fill dims %v", len(data), dims)
	}
	if count == 0 {
		return NewTensor(r, data, dims...)
	}
	held := &pinned{}
	held.pinner.Pin(&data[0])
	user := cgo.NewHandle(held)
	var one T
	var made C.evn_tensor
	err = r.self().with(func(raw C.uintptr_t, e *C.evn_error) C.evn_status {
		return C.evn_tensor_wrap(raw, unsafe.Pointer(&data[0]), C.size_t(count)*C.size_t(unsafe.Sizeof(one)), C.evn_dtype(DTypeOf[T]()),
			dimsAt(dims), C.uint32_t(len(dims)), C.evn_deleter(C.evn_go_delete), C.uintptr_t(user), &made, e)
	})
	if err != nil {
		evenerDelete(C.uintptr_t(user))
		return nil, err
	}
	return newTensor(made), nil
}

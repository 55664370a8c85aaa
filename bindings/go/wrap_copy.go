//go:build !go1.21 || evener_copy

package evener

// #include "glue.h"
import "C"

//export evenerDelete
func evenerDelete(user C.uintptr_t) { evenerRelease(user) }

// Wraps says whether Wrap has the tensor over the slice itself, and not over a copy.
const Wraps = false

// Wrap makes a tensor of the CPU device with a copy of the slice: this version of Go cannot pin it.
func Wrap[T Element](r *Runtime, data []T, dims ...int64) (*Tensor, error) {
	return NewTensor(r, data, dims...)
}

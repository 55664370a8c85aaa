package evener

// #include "glue.h"
import "C"

import (
	"fmt"
	"runtime"
	"sync"
	"unsafe"
)

// DType is the type of a tensor's elements; the values are ONNX's.
type DType int32

// Float16 and BFloat16 are the bits of elements that Go has no type for.
type (
	Float16  uint16
	BFloat16 uint16
)

// The types that Go's slices can hold, and strings.
const (
	DFloat32  DType = C.EVN_DTYPE_FLOAT32
	DUint8    DType = C.EVN_DTYPE_UINT8
	DInt8     DType = C.EVN_DTYPE_INT8
	DUint16   DType = C.EVN_DTYPE_UINT16
	DInt16    DType = C.EVN_DTYPE_INT16
	DInt32    DType = C.EVN_DTYPE_INT32
	DInt64    DType = C.EVN_DTYPE_INT64
	DString   DType = C.EVN_DTYPE_STRING
	DBool     DType = C.EVN_DTYPE_BOOL
	DFloat16  DType = C.EVN_DTYPE_FLOAT16
	DFloat64  DType = C.EVN_DTYPE_FLOAT64
	DUint32   DType = C.EVN_DTYPE_UINT32
	DUint64   DType = C.EVN_DTYPE_UINT64
	DBFloat16 DType = C.EVN_DTYPE_BFLOAT16
)

var dtypeNames = map[DType]string{
	DFloat32: "float32", DUint8: "uint8", DInt8: "int8", DUint16: "uint16", DInt16: "int16", DInt32: "int32", DInt64: "int64",
	DString: "string", DBool: "bool", DFloat16: "float16", DFloat64: "float64", DUint32: "uint32", DUint64: "uint64", DBFloat16: "bfloat16",
}

func (t DType) String() string {
	if name, ok := dtypeNames[t]; ok {
		return name
	}
	return fmt.Sprintf("dtype %d", int32(t))
}

// Element is what slices over tensors have.
type Element interface {
	float32 | float64 | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64 | bool | Float16 | BFloat16
}

// DTypeOf gives the type of a slice's elements.
func DTypeOf[T Element]() DType {
	var one T
	switch any(one).(type) {
	case float32:
		return DFloat32
	case float64:
		return DFloat64
	case int8:
		return DInt8
	case int16:
		return DInt16
	case int32:
		return DInt32
	case int64:
		return DInt64
	case uint8:
		return DUint8
	case uint16:
		return DUint16
	case uint32:
		return DUint32
	case uint64:
		return DUint64
	case bool:
		return DBool
	case Float16:
		return DFloat16
	}
	return DBFloat16
}

// Tensor is elements of one type, row-major, on one device.
type Tensor struct {
	object   *object
	mutex    sync.Mutex
	views    int
	isClosed bool // Close was called while there were views
}

func (t *Tensor) self() *object {
	if t == nil {
		return nil
	}
	return t.object
}

func releaseTensor(raw C.uintptr_t) { C.evn_tensor_release(raw) }

func newTensor(raw C.uintptr_t) *Tensor { return &Tensor{object: own("tensor", raw, releaseTensor)} }

// Close ends the hold; the memory goes when its last use ends, that of requests and views included.
func (t *Tensor) Close() error {
	if t == nil {
		return nil
	}
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if t.views > 0 {
		t.isClosed = true
		return nil
	}
	return t.self().Close()
}

// handle of a tensor that is not closed, also where a view still holds it.
func (t *Tensor) handle() (C.uintptr_t, error) {
	if t == nil {
		return t.self().handle()
	}
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if t.isClosed {
		return 0, &Error{Status: InvalidHandle, Message: "the tensor is closed"}
	}
	return t.self().handle()
}

// TensorInfo says what a tensor is.
type TensorInfo struct {
	DType     DType
	Dims      []int64
	SizeBytes uint64
	Device    string
	ReadOnly  bool
	Pinned    bool
}

// Info gives it.
func (t *Tensor) Info() (*TensorInfo, error) {
	if _, err := t.handle(); err != nil {
		return nil, err
	}
	info := C.evn_tensor_info_initial()
	if err := t.self().with(func(raw C.uintptr_t, e *C.evn_error) C.evn_status { return C.evn_tensor_get_info(raw, &info, e) }); err != nil {
		return nil, err
	}
	made := &TensorInfo{
		DType: DType(info.dtype), Dims: make([]int64, info.rank), SizeBytes: uint64(info.size_bytes), Device: textOf(info.device[:]),
		ReadOnly: info.flags&C.EVN_TENSOR_READ_ONLY != 0, Pinned: info.flags&C.EVN_TENSOR_PINNED != 0,
	}
	for i := range made.Dims {
		made.Dims[i] = int64(info.dims[i])
	}
	return made, nil
}

// Dims gives its shape.
func (t *Tensor) Dims() ([]int64, error) {
	info, err := t.Info()
	if err != nil {
		return nil, err
	}
	return info.Dims, nil
}

func dimsAt(dims []int64) *C.int64_t { return (*C.int64_t)(unsafe.Pointer(first(dims))) }

func countOf(dims []int64) (int, error) {
	count := int64(1)
	for _, dim := range dims {
		if dim < 0 || (dim != 0 && count > (1<<62)/dim) {
			return 0, argument("dims %v are no shape", dims)
		}
		count *= dim
	}
	return int(count), nil
}

// Tensor makes a tensor of zeros on the device; pinned: in memory that the device's driver and the host share.
func (d *Device) Tensor(dtype DType, pinned bool, dims ...int64) (*Tensor, error) {
	var flags C.uint32_t
	if pinned {
		flags = C.EVN_TENSOR_PINNED
	}
	var made C.evn_tensor
	err := d.self().with(func(raw C.uintptr_t, e *C.evn_error) C.evn_status {
		return C.evn_tensor_create(raw, C.evn_dtype(dtype), dimsAt(dims), C.uint32_t(len(dims)), flags, &made, e)
	})
	if err != nil {
		return nil, err
	}
	return newTensor(made), nil
}

// NewTensor makes a tensor of the CPU device with a copy of `data`.
func NewTensor[T Element](r *Runtime, data []T, dims ...int64) (*Tensor, error) {
	if count, err := countOf(dims); err != nil || count != len(data) {
		return nil, argument("%d elements do not fill dims %v", len(data), dims)
	}
	if _, err := r.self().handle(); err != nil {
		return nil, err
	}
	made, err := r.cpu.Tensor(DTypeOf[T](), false, dims...)
	if err != nil {
		return nil, err
	}
	if err := Write(made, func(to []T) error { copy(to, data); return nil }); err != nil {
		made.Close()
		return nil, err
	}
	return made, nil
}

// NewStrings makes a tensor of strings.
func NewStrings(r *Runtime, data []string, dims ...int64) (*Tensor, error) {
	if _, err := r.self().handle(); err != nil {
		return nil, err
	}
	made, err := r.cpu.Tensor(DString, false, dims...)
	if err != nil {
		return nil, err
	}
	var bag bag
	defer bag.free()
	texts, sizes := room[*C.char](&bag, len(data)), room[C.size_t](&bag, len(data))
	for i, text := range data {
		texts[i], sizes[i] = (*C.char)(bag.bytes([]byte(text+"\x00"))), C.size_t(len(text))
	}
	err = made.self().with(func(raw C.uintptr_t, e *C.evn_error) C.evn_status {
		return C.evn_tensor_set_strings(raw, first(texts), first(sizes), C.size_t(len(data)), e)
	})
	if err != nil {
		made.Close()
		return nil, err
	}
	return made, nil
}

// Strings gives the elements of a tensor of strings.
func (t *Tensor) Strings() ([]string, error) {
	raw, err := t.handle()
	if err != nil {
		return nil, err
	}
	info, err := t.Info()
	if err != nil {
		return nil, err
	}
	count, err := countOf(info.Dims)
	if err != nil {
		return nil, err
	}
	offsets := make([]C.size_t, count+1)
	bytes, err := readBytes(256, func(buffer *C.char, capacity C.size_t, size *C.size_t, e *C.evn_error) C.evn_status {
		return C.evn_tensor_get_strings(raw, buffer, capacity, &offsets[0], C.size_t(count), size, e)
	})
	runtime.KeepAlive(t)
	if err != nil {
		return nil, err
	}
	made := make([]string, count)
	for i := range made {
		made[i] = string(bytes[offsets[i] : offsets[i+1]-1])
	}
	return made, nil
}

// view calls `use` with the elements where they lie. A Close that comes meanwhile takes effect at its end.
func view[T Element](t *Tensor, flags C.uint32_t, use func([]T) error) (err error) {
	raw, err := t.handle()
	if err != nil {
		return err
	}
	info, err := t.Info()
	if err != nil {
		return err
	}
	if wanted := DTypeOf[T](); info.DType != wanted {
		return argument("a tensor of %v is no slice of %v", info.DType, wanted)
	}
	t.mutex.Lock()
	t.views++
	t.mutex.Unlock()
	defer func() {
		t.mutex.Lock()
		t.views--
		isLast := t.views == 0 && t.isClosed
		t.mutex.Unlock()
		if isLast {
			t.self().Close()
		}
	}()
	var data unsafe.Pointer
	var size C.size_t
	if err := check(func(e *C.evn_error) C.evn_status { return C.evn_tensor_map(raw, flags, &data, &size, e) }); err != nil {
		return err
	}
	defer func() {
		failed := check(func(e *C.evn_error) C.evn_status { return C.evn_tensor_unmap(raw, e) })
		if err == nil {
			err = failed
		}
		runtime.KeepAlive(t)
	}()
	var one T
	if data == nil {
		return use(nil)
	}
	return use(unsafe.Slice((*T)(data), int(size)/int(unsafe.Sizeof(one))))
}

// Read calls `use` with the elements where they lie, for reading. The slice ends with the call: it must not be kept.
func Read[T Element](t *Tensor, use func([]T) error) error { return view(t, C.EVN_MAP_READ, use) }

// Write calls `use` with the elements where they lie, to be read and written. The slice ends with the call: it must not be kept.
func Write[T Element](t *Tensor, use func([]T) error) error {
	return view(t, C.EVN_MAP_READ|C.EVN_MAP_WRITE, use)
}

// Data gives a copy of the elements.
func Data[T Element](t *Tensor) ([]T, error) {
	var made []T
	err := Read(t, func(data []T) error { made = append([]T{}, data...); return nil })
	return made, err
}

// Part makes a tensor over a part of this one's memory: elements from `first` on, with dims of their own.
func (t *Tensor) Part(first uint64, dims ...int64) (*Tensor, error) {
	raw, err := t.handle()
	if err != nil {
		return nil, err
	}
	var made C.evn_tensor
	err = check(func(e *C.evn_error) C.evn_status {
		return C.evn_tensor_create_view(raw, C.uint64_t(first), dimsAt(dims), C.uint32_t(len(dims)), &made, e)
	})
	runtime.KeepAlive(t)
	if err != nil {
		return nil, err
	}
	return newTensor(made), nil
}

// CopyInto copies all bytes into another tensor of the same dtype and dims, on any device.
func (t *Tensor) CopyInto(target *Tensor) error {
	from, err := t.handle()
	if err != nil {
		return err
	}
	to, err := target.handle()
	if err != nil {
		return err
	}
	err = check(func(e *C.evn_error) C.evn_status { return C.evn_tensor_copy(from, to, e) })
	runtime.KeepAlive(t)
	runtime.KeepAlive(target)
	return err
}

// CopyTo makes a tensor with the same contents on a device.
func (t *Tensor) CopyTo(device *Device) (*Tensor, error) {
	from, err := t.handle()
	if err != nil {
		return nil, err
	}
	to, err := device.self().handle()
	if err != nil {
		return nil, err
	}
	var made C.evn_tensor
	err = check(func(e *C.evn_error) C.evn_status { return C.evn_tensor_copy_to(from, to, &made, e) })
	runtime.KeepAlive(device)
	runtime.KeepAlive(t)
	if err != nil {
		return nil, err
	}
	return newTensor(made), nil
}

package evener

// #include "glue.h"
import "C"

import (
	"context"
	"math"
	"runtime"
	"time"
	"unsafe"
)

// Device is a view of one device of a runtime.
type Device struct{ object *object }

func (d *Device) self() *object {
	if d == nil {
		return nil
	}
	return d.object
}

// Close ends the hold. It never fails; the second call does nothing.
func (d *Device) Close() error { return d.self().Close() }

func releaseDevice(raw C.uintptr_t) { C.evn_device_release(raw) }

// DeviceKind is by what a device is reached.
type DeviceKind int32

// DeviceState says whether a device can be used.
type DeviceState int32

// Trim says when blocks of memory that nobody uses go back to the system.
type Trim int32

// The kinds, states and ways of the C API.
const (
	CPU    DeviceKind = C.EVN_DEVICE_CPU
	OpenCL DeviceKind = C.EVN_DEVICE_OPENCL
	Other  DeviceKind = C.EVN_DEVICE_OTHER

	Ready       DeviceState = C.EVN_DEVICE_READY
	Quarantined DeviceState = C.EVN_DEVICE_QUARANTINED
	Lost        DeviceState = C.EVN_DEVICE_LOST

	TrimNever  Trim = C.EVN_TRIM_NEVER
	TrimIdle   Trim = C.EVN_TRIM_IDLE
	TrimAlways Trim = C.EVN_TRIM_ALWAYS

	// NoLimit is a limit of bytes that there is not.
	NoLimit uint64 = math.MaxUint64
)

// Features of a device: bits of DeviceInfo.Features.
const (
	FP16          uint32 = C.EVN_DEVICE_FP16
	BF16          uint32 = C.EVN_DEVICE_BF16
	Int8Dot       uint32 = C.EVN_DEVICE_INT8_DOT
	UnifiedMemory uint32 = C.EVN_DEVICE_UNIFIED_MEMORY
	Subgroups     uint32 = C.EVN_DEVICE_SUBGROUPS
)

// DeviceInfo says what a device is.
type DeviceInfo struct {
	Kind              DeviceKind
	Class             int32 // EVN_DEVICE_CLASS_... of the C API: 0 unknown, 1 CPU, 2 GPU, 3 accelerator
	Name              string
	Description       string // the processor's or driver's own name
	Driver            string // platform and driver version, or the chosen instruction set of the CPU
	Identity          string // tells it apart from other devices of this machine
	ComputeUnits      int
	MemoryBytes       uint64
	LargestAllocation uint64
	Features          uint32
	State             DeviceState
	Quarantines       int // how often it was in quarantine so far
}

// Info fills it, with the whole texts.
func (d *Device) Info() (*DeviceInfo, error) {
	info := C.evn_device_info_initial()
	if err := d.self().with(func(raw C.uintptr_t, e *C.evn_error) C.evn_status { return C.evn_device_get_info(raw, &info, e) }); err != nil {
		return nil, err
	}
	made := &DeviceInfo{
		Kind: DeviceKind(info.kind), Class: int32(info.device_class), Name: textOf(info.name[:]), Identity: textOf(info.identity[:]),
		ComputeUnits: int(info.compute_units), MemoryBytes: uint64(info.memory_bytes), LargestAllocation: uint64(info.largest_allocation),
		Features: uint32(info.features), State: DeviceState(info.state), Quarantines: int(info.quarantines),
	}
	var err error
	made.Description, err = d.self().text(128, func(raw C.uintptr_t, buffer *C.char, capacity C.size_t, size *C.size_t, e *C.evn_error) C.evn_status {
		return C.evn_device_description(raw, buffer, capacity, size, e)
	})
	if err != nil {
		return nil, err
	}
	made.Driver, err = d.self().text(128, func(raw C.uintptr_t, buffer *C.char, capacity C.size_t, size *C.size_t, e *C.evn_error) C.evn_status {
		return C.evn_device_driver(raw, buffer, capacity, size, e)
	})
	if err != nil {
		return nil, err
	}
	return made, nil
}

// Condition says why the device is not ready; "" where it is.
func (d *Device) Condition() (string, error) {
	return d.self().text(128, func(raw C.uintptr_t, buffer *C.char, capacity C.size_t, size *C.size_t, e *C.evn_error) C.evn_status {
		return C.evn_device_condition(raw, buffer, capacity, size, e)
	})
}

// MemoryStats is one device's memory in bytes, as the library's ledger counts it.
type MemoryStats struct {
	Current, Peak, Reserved, Limit                                     uint64 // Limit: NoLimit where there is none
	Tensors, Weights, Packed, Arenas, Scratch, Loading, States, Heap   uint64 // Current by class
	Allocations, CacheHits, LargestFreeBlock                           uint64
	Cached, Unused, FreeBlocks, WeightsDropped, WeightsRestored, Cache uint64 // Cache: the most that Cached may be
	Fragmentation                                                      float64
	Trim                                                               Trim
}

// MemoryStats gives what the device holds now.
func (d *Device) MemoryStats() (*MemoryStats, error) {
	stats := C.evn_memory_stats_initial()
	if err := d.self().with(func(raw C.uintptr_t, e *C.evn_error) C.evn_status {
		return C.evn_device_get_memory_stats(raw, &stats, e)
	}); err != nil {
		return nil, err
	}
	class := func(index int) uint64 { return uint64(stats.by_class[index]) }
	return &MemoryStats{
		Current: uint64(stats.current), Peak: uint64(stats.peak), Reserved: uint64(stats.reserved), Limit: uint64(stats.limit),
		Tensors: class(C.EVN_MEMORY_TENSORS), Weights: class(C.EVN_MEMORY_WEIGHTS), Packed: class(C.EVN_MEMORY_PACKED),
		Arenas: class(C.EVN_MEMORY_ARENAS), Scratch: class(C.EVN_MEMORY_SCRATCH), Loading: class(C.EVN_MEMORY_LOADING),
		States: class(C.EVN_MEMORY_STATES), Heap: class(C.EVN_MEMORY_HEAP), Allocations: uint64(stats.allocations), CacheHits: uint64(stats.cache_hits),
		LargestFreeBlock: uint64(stats.largest_free_block), Cached: uint64(stats.cached), Unused: uint64(stats.unused),
		FreeBlocks: uint64(stats.free_blocks), WeightsDropped: uint64(stats.weights_dropped), WeightsRestored: uint64(stats.weights_restored),
		Cache: uint64(stats.cache_limit), Fragmentation: float64(stats.fragmentation), Trim: Trim(stats.trim),
	}, nil
}

// ResetMemoryPeak sets the peak to what is in use now.
func (d *Device) ResetMemoryPeak() error {
	return d.self().with(func(raw C.uintptr_t, e *C.evn_error) C.evn_status { return C.evn_device_reset_memory_peak(raw, e) })
}

// SetMemoryLimit changes the cap on what the library holds on the device; NoLimit: none.
func (d *Device) SetMemoryLimit(bytes uint64) error {
	return d.self().with(func(raw C.uintptr_t, e *C.evn_error) C.evn_status {
		return C.evn_device_set_memory_limit(raw, C.uint64_t(bytes), e)
	})
}

// TrimMemory gives cached blocks back to the system.
func (d *Device) TrimMemory() error {
	return d.self().with(func(raw C.uintptr_t, e *C.evn_error) C.evn_status { return C.evn_device_trim_memory(raw, e) })
}

// SetCachePolicy changes what the pool keeps of blocks that nobody uses; NoLimit: all that the memory limit has room for.
func (d *Device) SetCachePolicy(bytes uint64, trim Trim) error {
	return d.self().with(func(raw C.uintptr_t, e *C.evn_error) C.evn_status {
		return C.evn_device_set_cache_policy(raw, C.uint64_t(bytes), C.evn_trim(trim), e)
	})
}

// Event is a point in the work of a device.
type Event struct{ object *object }

func (e *Event) self() *object {
	if e == nil {
		return nil
	}
	return e.object
}

// Close ends the hold. It never fails; the second call does nothing.
func (e *Event) Close() error { return e.self().Close() }

func releaseEvent(raw C.uintptr_t) { C.evn_event_release(raw) }

// RecordEvent gives an event of all that the device has been given so far.
func (d *Device) RecordEvent() (*Event, error) {
	made, err := d.self().make("event", releaseEvent, func(raw C.uintptr_t, out *C.uintptr_t, e *C.evn_error) C.evn_status {
		return C.evn_device_record_event(raw, out, e)
	})
	if err != nil {
		return nil, err
	}
	return &Event{made}, nil
}

// WaitEvent has what the device is given from now on begin after the event.
func (d *Device) WaitEvent(event *Event) error {
	of, err := event.self().handle()
	if err != nil {
		return err
	}
	err = d.self().with(func(raw C.uintptr_t, e *C.evn_error) C.evn_status { return C.evn_device_wait_event(raw, of, e) })
	runtime.KeepAlive(event)
	return err
}

// Wait waits until the event has happened. The context ends only the waiting.
func (e *Event) Wait(ctx context.Context) error {
	if ctx == nil {
		return noContext()
	}
	for {
		err := e.self().with(func(raw C.uintptr_t, failed *C.evn_error) C.evn_status {
			return C.evn_event_wait(raw, C.uint64_t(slice(ctx)), failed)
		})
		if failed, ok := err.(*Error); !ok || failed.Status != Timeout {
			return err
		}
		if err := ctx.Err(); err != nil {
			return &Error{Status: statusOf(err), Message: "the event has not happened", cause: err}
		}
	}
}

// slice is how long the library waits at a time, so that an end of the context is seen soon.
func slice(ctx context.Context) time.Duration {
	if ctx.Done() == nil {
		return time.Hour
	}
	return 10 * time.Millisecond
}

// CopyAsync has the devices copy `source` into `target` after the events, and returns at once. Both tensors stay until it is done.
func CopyAsync(source, target *Tensor, after ...*Event) (*Event, error) {
	from, err := source.handle()
	if err != nil {
		return nil, err
	}
	if _, err := target.handle(); err != nil {
		return nil, err
	}
	events := make([]C.evn_event, len(after))
	for i, event := range after {
		if events[i], err = event.self().handle(); err != nil {
			return nil, err
		}
	}
	made, err := target.self().make("event", releaseEvent, func(raw C.uintptr_t, out *C.uintptr_t, e *C.evn_error) C.evn_status {
		return C.evn_tensor_copy_async(from, raw, (*C.evn_event)(unsafe.Pointer(first(events))), C.uint32_t(len(events)), out, e)
	})
	runtime.KeepAlive(source)
	runtime.KeepAlive(after)
	if err != nil {
		return nil, err
	}
	return &Event{made}, nil
}

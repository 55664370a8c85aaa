package evener

// #include "glue.h"
import "C"

import (
	"context"
	"runtime"
	"runtime/cgo"
	"time"
	"unsafe"
)

// Format is how the library writes a text. Dot and SVG are of Session.Explain alone, Prometheus of Runtime.Statistics.
type Format int32

// The formats of the C API.
const (
	Text       Format = C.EVN_FORMAT_TEXT
	JSON       Format = C.EVN_FORMAT_JSON
	Dot        Format = C.EVN_FORMAT_DOT
	SVG        Format = C.EVN_FORMAT_SVG
	Prometheus Format = C.EVN_FORMAT_PROMETHEUS
)

// LogLevel is how much a log tells.
type LogLevel int32

// The levels of the C API.
const (
	LogError   LogLevel = C.EVN_LOG_ERROR
	LogWarning LogLevel = C.EVN_LOG_WARNING
	LogInfo    LogLevel = C.EVN_LOG_INFO
	LogDebug   LogLevel = C.EVN_LOG_DEBUG
)

// LogRecord is one thing that happened.
type LogRecord struct {
	Level       LogLevel
	TimestampNS uint64 // CLOCK_MONOTONIC
	Message     string
	Event       string // what happened, for programs: "session.created"; evn_log_record of the C API lists the names
	Device      string
	Node        string
	Fields      map[string]string // figures of the event
}

type logger func(*LogRecord)

//export evenerLog
func evenerLog(user C.uintptr_t, record *C.evn_log_record) {
	defer func() { _ = recover() }() // a panic cannot go through C
	made := &LogRecord{
		Level: LogLevel(record.level), TimestampNS: uint64(record.timestamp_ns), Message: C.GoString(record.message),
		Event: C.GoString(record.event), Device: C.GoString(record.device), Node: C.GoString(record.node), Fields: map[string]string{},
	}
	if record.field_count != 0 {
		for _, field := range unsafe.Slice(record.fields, int(record.field_count)) {
			made.Fields[C.GoString(field.key)] = C.GoString(field.value)
		}
	}
	valueOf(user).(logger)(made)
}

// RuntimeOptions says how a runtime is made. The zero value is the CPU with all cores that this process may use, no caps.
type RuntimeOptions struct {
	Threads     int    // of the CPU device, the caller's included; 0: from the configuration, else all that the process may use
	ConfigPath  string // a YAML file; config/schema.yaml documents its keys
	ConfigText  string // the YAML itself; not both
	CacheDir    string // folder for compiled OpenCL programs; "": the library's own choice
	NoCache     bool   // no such folder
	MemoryLimit uint64 // cap of the CPU device in bytes; 0: from the configuration, else none
	// Log receives what happens up to LogLevel, on any thread. It must return and not call the library; a panic of it is lost.
	Log          func(*LogRecord)
	LogLevel     LogLevel
	ProbeProgram string // path of the `evener` command, which tries drivers before they are loaded into this process
	ProbeTimeout time.Duration
}

// Runtime is devices, memory pools and threads. What is made of it keeps it.
type Runtime struct {
	object *object
	cpu    *Device
}

func (r *Runtime) self() *object {
	if r == nil {
		return nil
	}
	return r.object
}

func releaseRuntime(raw C.uintptr_t) { C.evn_runtime_release(raw) }

// NewRuntime makes a runtime; nil: with the zero options.
func NewRuntime(options *RuntimeOptions) (*Runtime, error) {
	if err := ready(); err != nil {
		return nil, err
	}
	if options == nil {
		options = &RuntimeOptions{}
	}
	var bag bag
	defer bag.free()
	raw := C.evn_runtime_options_initial()
	raw.cpu_memory_limit_bytes = C.uint64_t(options.MemoryLimit)
	err := setInt(&raw.thread_count, options.Threads, "Threads")
	if err != nil {
		return nil, err
	}
	if err = setDuration(&raw.probe_timeout_ns, options.ProbeTimeout, "ProbeTimeout"); err != nil {
		return nil, err
	}
	if raw.config_path, err = bag.optional(options.ConfigPath); err != nil {
		return nil, err
	}
	raw.config_text, raw.config_size = (*C.char)(bag.bytes([]byte(options.ConfigText))), C.size_t(len(options.ConfigText))
	if options.NoCache {
		raw.cache_dir, err = bag.text("")
	} else {
		raw.cache_dir, err = bag.optional(options.CacheDir)
	}
	if err != nil {
		return nil, err
	}
	if raw.probe_program, err = bag.optional(options.ProbeProgram); err != nil {
		return nil, err
	}
	var log cgo.Handle
	if options.Log != nil {
		log = cgo.NewHandle(logger(options.Log))
		raw.log_level = C.evn_log_level(options.LogLevel)
		raw.log_sink, raw.log_sink_user = C.evn_log_sink(C.evn_go_log), C.uintptr_t(log)
		raw.log_sink_release = C.evn_user_release(C.evn_go_release)
	}
	var made C.evn_runtime
	if err := check(func(e *C.evn_error) C.evn_status { return C.evn_runtime_create(&raw, &made, e) }); err != nil {
		if log != 0 {
			log.Delete()
		}
		return nil, err
	}
	result := &Runtime{object: own("runtime", made, releaseRuntime)}
	if result.cpu, err = result.deviceAt(0); err != nil {
		result.Close()
		return nil, err
	}
	return result, nil
}

// Close ends the hold. The runtime goes when what was made of it has gone.
func (r *Runtime) Close() error {
	if r == nil {
		return nil
	}
	r.cpu.Close()
	return r.self().Close()
}

func (r *Runtime) deviceAt(index int) (*Device, error) {
	made, err := r.self().make("device", releaseDevice, func(raw C.uintptr_t, out *C.uintptr_t, e *C.evn_error) C.evn_status {
		return C.evn_runtime_device_at(raw, C.uint32_t(index), out, e)
	})
	if err != nil {
		return nil, err
	}
	return &Device{made}, nil
}

// Devices gives the devices that have been opened so far; the first is the CPU.
func (r *Runtime) Devices() ([]*Device, error) {
	var count C.uint32_t
	if err := r.self().with(func(raw C.uintptr_t, e *C.evn_error) C.evn_status { return C.evn_runtime_device_count(raw, &count, e) }); err != nil {
		return nil, err
	}
	var made []*Device
	for i := 0; i < int(count); i++ {
		device, err := r.deviceAt(i)
		if err != nil {
			return nil, err
		}
		made = append(made, device)
	}
	return made, nil
}

// Device gives a device by its string: "cpu", "gpu", "gpu:1", "opencl:0" or a name of the configuration. Opens it if need be.
func (r *Runtime) Device(name string) (*Device, error) {
	var bag bag
	defer bag.free()
	text, err := bag.text(name)
	if err != nil {
		return nil, err
	}
	made, err := r.self().make("device", releaseDevice, func(raw C.uintptr_t, out *C.uintptr_t, e *C.evn_error) C.evn_status {
		return C.evn_runtime_device_find(raw, text, out, e)
	})
	if err != nil {
		return nil, err
	}
	return &Device{made}, nil
}

// DescribeDevices writes every platform and device that this machine offers, opened or not.
func (r *Runtime) DescribeDevices(format Format) (string, error) {
	return r.self().text(4096, func(raw C.uintptr_t, buffer *C.char, capacity C.size_t, size *C.size_t, e *C.evn_error) C.evn_status {
		return C.evn_runtime_describe_devices(raw, C.evn_format(format), buffer, capacity, size, e)
	})
}

// Statistics writes those of all sessions, and the memory of the devices.
func (r *Runtime) Statistics(format Format) (string, error) {
	return r.self().text(1<<14, func(raw C.uintptr_t, buffer *C.char, capacity C.size_t, size *C.size_t, e *C.evn_error) C.evn_status {
		return C.evn_runtime_get_statistics(raw, C.evn_format(format), buffer, capacity, size, e)
	})
}

// Session gives the session of a model that the configuration names in `models:`, one for all who ask.
func (r *Runtime) Session(name string) (*Session, error) {
	var bag bag
	defer bag.free()
	text, err := bag.text(name)
	if err != nil {
		return nil, err
	}
	made, err := r.self().make("session", releaseSession, func(raw C.uintptr_t, out *C.uintptr_t, e *C.evn_error) C.evn_status {
		return C.evn_runtime_session(raw, text, out, e)
	})
	if err != nil {
		return nil, err
	}
	return newSession(made)
}

// Reconfigure gives the runtime, and every session of it, the configuration of a YAML text; "": as without one. On an error nothing
// has changed.
func (r *Runtime) Reconfigure(ctx context.Context, yaml string) error {
	return r.reconfigure(ctx, "", yaml)
}

// ReconfigureFile gives it the configuration of a YAML file.
func (r *Runtime) ReconfigureFile(ctx context.Context, path string) error {
	return r.reconfigure(ctx, path, "")
}

func (r *Runtime) reconfigure(ctx context.Context, path, yaml string) error {
	var bag bag
	defer bag.free()
	bound, err := bind(ctx, false)
	if err != nil {
		return err
	}
	defer bound.end()
	options := C.evn_reconfigure_options_initial()
	options.cancel, options.deadline_ns = bound.token, bound.deadline
	if options.config_path, err = bag.optional(path); err != nil {
		return err
	}
	options.config_text, options.config_size = (*C.char)(bag.bytes([]byte(yaml))), C.size_t(len(yaml))
	return bound.caused(r.self().with(func(raw C.uintptr_t, e *C.evn_error) C.evn_status {
		return C.evn_runtime_reconfigure(raw, &options, e)
	}))
}

// Calibrate measures what steps of a model (nil: of some 100 operators) take on each device, for placements of `default: auto`.
func (r *Runtime) Calibrate(ctx context.Context, model *Model, format Format) (string, error) {
	bound, err := bind(ctx, false)
	if err != nil {
		return "", err
	}
	defer bound.end()
	options := C.evn_calibrate_options_initial()
	options.cancel, options.deadline_ns = bound.token, bound.deadline
	var of C.uintptr_t
	if model != nil {
		if of, err = model.self().handle(); err != nil {
			return "", err
		}
	}
	text, err := r.self().text(1<<16, func(raw C.uintptr_t, buffer *C.char, capacity C.size_t, size *C.size_t, e *C.evn_error) C.evn_status {
		return C.evn_runtime_calibrate(raw, of, &options, C.evn_format(format), buffer, capacity, size, e)
	})
	runtime.KeepAlive(model)
	return text, bound.caused(err)
}

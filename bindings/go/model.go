package evener

// #include "glue.h"
import "C"

import (
	"context"
	"errors"
	"math"
	"runtime"
	"unsafe"
)

// Model is an immutable graph and its weights.
type Model struct{ object *object }

func (m *Model) self() *object {
	if m == nil {
		return nil
	}
	return m.object
}

// Close ends the hold; sessions that were made of it go on. It never fails; the second call does nothing.
func (m *Model) Close() error { return m.self().Close() }

func releaseModel(raw C.uintptr_t) { C.evn_model_release(raw) }

// ValueInfo is an input or output of a model or session.
type ValueInfo struct {
	Name    string
	Type    string // "tensor(float32)", "seq(tensor(int64))"
	DType   DType
	HasRank bool     // false: the rank is known only when it runs
	Dims    []int64  // -1: known only when it runs
	Symbols []string // the model's names of the dims that are -1, or ""
}

// ModelOptions says how a model is loaded.
type ModelOptions struct {
	ExternalDir  string   // the folder of the weights in other files of a model from memory; "": there are none
	AllowedRoots []string // folders beneath which files of weights may lie that are reached through links
	MapFiles     bool     // large tensors are used where they lie in mapped files, which nobody truncates
}

func (b *bag) model(options *ModelOptions) (raw C.evn_model_options, err error) {
	raw = C.evn_model_options_initial()
	if options == nil {
		return raw, nil
	}
	if raw.external_dir, err = b.optional(options.ExternalDir); err != nil {
		return raw, err
	}
	if raw.allowed_roots, err = b.texts(options.AllowedRoots); err != nil {
		return raw, err
	}
	raw.allowed_root_count = C.uint32_t(len(options.AllowedRoots))
	if options.MapFiles {
		raw.flags |= C.EVN_MODEL_MAP
	}
	return raw, nil
}

// Load reads an ONNX file. Weights in other files must lie in its folder.
func (r *Runtime) Load(ctx context.Context, path string) (*Model, error) {
	return r.LoadWith(ctx, path, nil)
}

// LoadWith reads an ONNX file with options; nil: the zero options.
func (r *Runtime) LoadWith(ctx context.Context, path string, options *ModelOptions) (*Model, error) {
	var bag bag
	defer bag.free()
	text, err := bag.text(path)
	if err != nil {
		return nil, err
	}
	initial, err := bag.model(options)
	if err != nil {
		return nil, err
	}
	return r.load(ctx, func(raw C.uintptr_t, options *C.evn_model_options, out *C.evn_model, e *C.evn_error) C.evn_status {
		return C.evn_model_load_file(raw, text, options, out, e)
	}, initial)
}

// LoadBytes reads a model from memory, which is copied.
//
//	externalDir  the folder of its weights in other files; "": there are none
func (r *Runtime) LoadBytes(ctx context.Context, data []byte, externalDir string) (*Model, error) {
	return r.LoadBytesWith(ctx, data, &ModelOptions{ExternalDir: externalDir})
}

// LoadBytesWith reads a model from memory, which is copied, with options; nil: the zero options.
func (r *Runtime) LoadBytesWith(ctx context.Context, data []byte, options *ModelOptions) (*Model, error) {
	var bag bag
	defer bag.free()
	initial, err := bag.model(options)
	if err != nil {
		return nil, err
	}
	return r.load(ctx, func(raw C.uintptr_t, options *C.evn_model_options, out *C.evn_model, e *C.evn_error) C.evn_status {
		return C.evn_model_load_buffer(raw, unsafe.Pointer(first(data)), C.size_t(len(data)), options, out, e)
	}, initial)
}

func (r *Runtime) load(ctx context.Context, call func(C.uintptr_t, *C.evn_model_options, *C.evn_model, *C.evn_error) C.evn_status, options C.evn_model_options) (*Model, error) {
	bound, err := bind(ctx, false)
	if err != nil {
		return nil, err
	}
	defer bound.end()
	options.cancel, options.deadline_ns = bound.token, bound.deadline
	made, err := r.self().make("model", releaseModel, func(raw C.uintptr_t, out *C.uintptr_t, e *C.evn_error) C.evn_status {
		return call(raw, &options, out, e)
	})
	if err != nil {
		return nil, bound.caused(err)
	}
	return &Model{made}, nil
}

// Describe writes what the model is.
func (m *Model) Describe(format Format) (string, error) {
	return m.self().text(4096, func(raw C.uintptr_t, buffer *C.char, capacity C.size_t, size *C.size_t, e *C.evn_error) C.evn_status {
		return C.evn_model_describe(raw, C.evn_format(format), buffer, capacity, size, e)
	})
}

// Metadata gives the value of a metadata entry, and whether there is one.
func (m *Model) Metadata(key string) (string, bool, error) {
	var bag bag
	defer bag.free()
	name, err := bag.text(key)
	if err != nil {
		return "", false, err
	}
	text, err := m.self().text(256, func(raw C.uintptr_t, buffer *C.char, capacity C.size_t, size *C.size_t, e *C.evn_error) C.evn_status {
		return C.evn_model_get_metadata(raw, name, buffer, capacity, size, e)
	})
	if errors.Is(err, InvalidArgument) {
		return "", false, nil
	}
	return text, err == nil, err
}

// MetadataKeys gives the keys in the order of the file.
func (m *Model) MetadataKeys() ([]string, error) {
	count, err := countBy(m.self(), func(raw C.uintptr_t, count *C.uint32_t, e *C.evn_error) C.evn_status {
		return C.evn_model_metadata_count(raw, count, e)
	})
	if err != nil {
		return nil, err
	}
	keys := make([]string, count)
	for i := range keys {
		keys[i], err = m.self().text(64, func(raw C.uintptr_t, buffer *C.char, capacity C.size_t, size *C.size_t, e *C.evn_error) C.evn_status {
			return C.evn_model_metadata_key(raw, C.uint32_t(i), buffer, capacity, size, e)
		})
		if err != nil {
			return nil, err
		}
	}
	return keys, nil
}

func countBy(o *object, call func(C.uintptr_t, *C.uint32_t, *C.evn_error) C.evn_status) (int, error) {
	var count C.uint32_t
	err := o.with(func(raw C.uintptr_t, e *C.evn_error) C.evn_status { return call(raw, &count, e) })
	return int(count), err
}

type infoCall func(raw C.uintptr_t, index C.uint32_t, info *C.evn_value_info, e *C.evn_error) C.evn_status
type nameCall func(raw C.uintptr_t, index C.uint32_t, buffer *C.char, capacity C.size_t, size *C.size_t, e *C.evn_error) C.evn_status
type symbolCall func(raw C.uintptr_t, index, axis C.uint32_t, buffer *C.char, capacity C.size_t, size *C.size_t, e *C.evn_error) C.evn_status

// infosOf gives `count` inputs or outputs from index `from` on. Without `symbol` names of dims are those that fit.
func infosOf(o *object, from, count int, info infoCall, name nameCall, symbol symbolCall) ([]ValueInfo, error) {
	made := make([]ValueInfo, count)
	for i := range made {
		raw, index := C.evn_value_info_initial(), C.uint32_t(from+i)
		if err := o.with(func(of C.uintptr_t, e *C.evn_error) C.evn_status { return info(of, index, &raw, e) }); err != nil {
			return nil, err
		}
		text, err := o.text(64, func(of C.uintptr_t, buffer *C.char, capacity C.size_t, size *C.size_t, e *C.evn_error) C.evn_status {
			return name(of, index, buffer, capacity, size, e)
		})
		if err != nil {
			return nil, err
		}
		value := ValueInfo{Name: text, Type: textOf(raw._type[:]), DType: DType(raw.dtype), HasRank: raw.rank != math.MaxUint32}
		for axis := 0; value.HasRank && axis < int(raw.rank); axis++ {
			called := textOf(raw.symbols[axis][:])
			if symbol != nil && called != "" {
				called, err = o.text(64, func(of C.uintptr_t, buffer *C.char, capacity C.size_t, size *C.size_t, e *C.evn_error) C.evn_status {
					return symbol(of, index, C.uint32_t(axis), buffer, capacity, size, e)
				})
				if err != nil {
					return nil, err
				}
			}
			value.Dims, value.Symbols = append(value.Dims, int64(raw.dims[axis])), append(value.Symbols, called)
		}
		made[i] = value
	}
	return made, nil
}

// inputsFrom gives `count` inputs from index `from` on; those with a default follow the others.
func (m *Model) inputsFrom(from, count int) ([]ValueInfo, error) {
	return infosOf(m.self(), from, count,
		func(raw C.uintptr_t, index C.uint32_t, info *C.evn_value_info, e *C.evn_error) C.evn_status {
			return C.evn_model_get_input_info(raw, index, info, e)
		},
		func(raw C.uintptr_t, index C.uint32_t, buffer *C.char, capacity C.size_t, size *C.size_t, e *C.evn_error) C.evn_status {
			return C.evn_model_input_name(raw, index, buffer, capacity, size, e)
		},
		func(raw C.uintptr_t, index, axis C.uint32_t, buffer *C.char, capacity C.size_t, size *C.size_t, e *C.evn_error) C.evn_status {
			return C.evn_model_input_symbol(raw, index, axis, buffer, capacity, size, e)
		})
}

func (m *Model) inputCount() (int, error) {
	return countBy(m.self(), func(raw C.uintptr_t, count *C.uint32_t, e *C.evn_error) C.evn_status {
		return C.evn_model_input_count(raw, count, e)
	})
}

// Inputs gives the model's inputs; weights are none.
func (m *Model) Inputs() ([]ValueInfo, error) {
	count, err := m.inputCount()
	if err != nil {
		return nil, err
	}
	return m.inputsFrom(0, count)
}

// Defaults gives the inputs that need not be given, since they have a default.
func (m *Model) Defaults() ([]ValueInfo, error) {
	from, err := m.inputCount()
	if err != nil {
		return nil, err
	}
	count, err := countBy(m.self(), func(raw C.uintptr_t, count *C.uint32_t, e *C.evn_error) C.evn_status {
		return C.evn_model_default_count(raw, count, e)
	})
	if err != nil {
		return nil, err
	}
	return m.inputsFrom(from, count)
}

// Outputs gives the model's outputs.
func (m *Model) Outputs() ([]ValueInfo, error) {
	count, err := countBy(m.self(), func(raw C.uintptr_t, count *C.uint32_t, e *C.evn_error) C.evn_status {
		return C.evn_model_output_count(raw, count, e)
	})
	if err != nil {
		return nil, err
	}
	return infosOf(m.self(), 0, count,
		func(raw C.uintptr_t, index C.uint32_t, info *C.evn_value_info, e *C.evn_error) C.evn_status {
			return C.evn_model_get_output_info(raw, index, info, e)
		},
		func(raw C.uintptr_t, index C.uint32_t, buffer *C.char, capacity C.size_t, size *C.size_t, e *C.evn_error) C.evn_status {
			return C.evn_model_output_name(raw, index, buffer, capacity, size, e)
		},
		func(raw C.uintptr_t, index, axis C.uint32_t, buffer *C.char, capacity C.size_t, size *C.size_t, e *C.evn_error) C.evn_status {
			return C.evn_model_output_symbol(raw, index, axis, buffer, capacity, size, e)
		})
}

// shapesOf gives dims by name as C takes them.
func (b *bag) shapesOf(shapes map[string][]int64) (*C.evn_input_shape, C.uint32_t, error) {
	made := room[C.evn_input_shape](b, len(shapes))
	at := 0
	for name, dims := range shapes {
		text, err := b.text(name)
		if err != nil {
			return nil, 0, err
		}
		held := room[C.int64_t](b, len(dims))
		for i, dim := range dims {
			held[i] = C.int64_t(dim)
		}
		made[at].name, made[at].dims, made[at].rank = text, first(held), C.uint32_t(len(dims))
		at++
	}
	return first(made), C.uint32_t(len(made)), nil
}

// Inspect writes what the model at a path needs, also where this library cannot load it.
//
//	shapes  of inputs whose dims the model leaves open; nullable
func (r *Runtime) Inspect(path string, shapes map[string][]int64, format Format) (string, error) {
	var bag bag
	defer bag.free()
	text, err := bag.text(path)
	if err != nil {
		return "", err
	}
	options := C.evn_inspect_options_initial()
	if options.shapes, options.shape_count, err = bag.shapesOf(shapes); err != nil {
		return "", err
	}
	made, err := r.self().text(1<<16, func(raw C.uintptr_t, buffer *C.char, capacity C.size_t, size *C.size_t, e *C.evn_error) C.evn_status {
		return C.evn_model_inspect(raw, text, &options, C.evn_format(format), buffer, capacity, size, e)
	})
	runtime.KeepAlive(r)
	return made, err
}

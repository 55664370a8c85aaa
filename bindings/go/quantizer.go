package evener

// #include "glue.h"
import "C"

import (
	"context"
	"runtime"
	"runtime/cgo"
)

// Choices of QuantizerOptions, as in the C API.
const (
	QuantizeStatic   = C.EVN_QUANTIZE_STATIC
	QuantizeDynamic  = C.EVN_QUANTIZE_DYNAMIC
	QuantizeWeights  = C.EVN_QUANTIZE_WEIGHTS
	QuantizeFloat16  = C.EVN_QUANTIZE_FLOAT16
	QuantizeBFloat16 = C.EVN_QUANTIZE_BFLOAT16

	CalibrationMinMax     = C.EVN_CALIBRATION_MINMAX
	CalibrationPercentile = C.EVN_CALIBRATION_PERCENTILE
	CalibrationEntropy    = C.EVN_CALIBRATION_ENTROPY
	CalibrationMSE        = C.EVN_CALIBRATION_MSE

	QuantizePerTensor    = C.EVN_QUANTIZE_PER_TENSOR
	QuantizeContrib      = C.EVN_QUANTIZE_CONTRIB
	QuantizeExternalData = C.EVN_QUANTIZE_EXTERNAL_DATA
	QuantizeQOperator    = C.EVN_QUANTIZE_QOPERATOR
	QuantizeEqualize     = C.EVN_QUANTIZE_EQUALIZE
	QuantizeSmooth       = C.EVN_QUANTIZE_SMOOTH
	QuantizeCorrectBias  = C.EVN_QUANTIZE_CORRECT_BIAS

	GuardError = C.EVN_GUARD_ERROR
	GuardSpeed = C.EVN_GUARD_SPEED
)

// QuantizerOptions says how a model is quantized. The zero value is static, from the smallest to the largest value.
type QuantizerOptions struct {
	Mode        int32
	Calibration int32
	Activation  DType // DUint8 or DInt8; 0: DUint8
	Percentile  float64
	Flags       uint32
	Keep        []string // nodes that stay float32
	WeightBits  int
	BlockSize   int
	// Progress is told how much of a call is done; false ends it with Cancelled, and so does a panic.
	Progress    func(what string, done, total uint64) bool
	Data        []byte // the model's bytes, where the path is ""
	ExternalDir string
}

type progress func(string, uint64, uint64) bool

//export evenerProgress
func evenerProgress(user C.uintptr_t, what *C.char, done, total C.uint64_t) (stop C.int32_t) {
	defer func() {
		if recover() != nil {
			stop = 1
		}
	}()
	if !valueOf(user).(progress)(C.GoString(what), uint64(done), uint64(total)) {
		return 1
	}
	return 0
}

// Quantizer makes of a float32 model one that computes with 8-bit numbers.
type Quantizer struct {
	object *object
	bound  *binding
}

func (q *Quantizer) self() *object {
	if q == nil {
		return nil
	}
	return q.object
}

// Close ends the hold. It never fails; the second call does nothing.
func (q *Quantizer) Close() error { return q.self().Close() }

func releaseQuantizer(raw C.uintptr_t) { C.evn_quantizer_release(raw) }

// NewQuantizer reads a model from a path, or where that is "" from the options' Data. The context is of all calls of the quantizer.
func (r *Runtime) NewQuantizer(ctx context.Context, path string, options *QuantizerOptions) (*Quantizer, error) {
	if options == nil {
		options = &QuantizerOptions{}
	}
	var bag bag
	defer bag.free()
	raw := C.evn_quantizer_options_initial()
	raw.mode, raw.calibration, raw.activation = C.evn_quantize_mode(options.Mode), C.evn_calibration(options.Calibration), C.evn_dtype(options.Activation)
	raw.percentile, raw.flags = C.double(options.Percentile), C.uint32_t(options.Flags)
	if err := setInt(&raw.weight_bits, options.WeightBits, "WeightBits"); err != nil {
		return nil, err
	}
	if err := setInt(&raw.block_size, options.BlockSize, "BlockSize"); err != nil {
		return nil, err
	}
	text, err := bag.optional(path)
	if err != nil {
		return nil, err
	}
	if raw.keep, err = bag.texts(options.Keep); err != nil {
		return nil, err
	}
	raw.keep_count = C.uint32_t(len(options.Keep))
	if raw.external_dir, err = bag.optional(options.ExternalDir); err != nil {
		return nil, err
	}
	raw.data, raw.size = bag.bytes(options.Data), C.size_t(len(options.Data))
	bound, err := bind(ctx, false)
	if err != nil {
		return nil, err
	}
	raw.cancel, raw.deadline_ns = bound.token, bound.deadline
	var user cgo.Handle
	if options.Progress != nil {
		user = cgo.NewHandle(progress(options.Progress))
		raw.progress, raw.progress_user = C.evn_quantize_progress(C.evn_go_progress), C.uintptr_t(user)
		raw.progress_release = C.evn_user_release(C.evn_go_release)
	}
	made, err := r.self().make("quantizer", func(raw C.uintptr_t) { releaseQuantizer(raw); bound.end() },
		func(of C.uintptr_t, out *C.uintptr_t, e *C.evn_error) C.evn_status {
			return C.evn_quantizer_create(of, text, &raw, out, e)
		})
	if err != nil {
		if user != 0 {
			user.Delete()
		}
		bound.end()
		return nil, bound.caused(err)
	}
	return &Quantizer{made, bound}, nil
}

// given calls a function with inputs by name, in the model's order.
func (q *Quantizer) given(inputs map[string]*Tensor, call func(C.uintptr_t, *C.evn_tensor, C.uint32_t, *C.evn_error) C.evn_status) error {
	count, err := q.InputCount()
	if err != nil {
		return err
	}
	handles := make([]C.evn_tensor, count)
	for name, tensor := range inputs {
		index, err := q.FindInput(name)
		if err != nil {
			return err
		}
		if handles[index], err = tensor.handle(); err != nil {
			return err
		}
	}
	err = q.self().with(func(raw C.uintptr_t, e *C.evn_error) C.evn_status {
		return call(raw, first(handles), C.uint32_t(count), e)
	})
	runtime.KeepAlive(inputs)
	return q.bound.caused(err)
}

// InputCount gives how many inputs the model has.
func (q *Quantizer) InputCount() (int, error) {
	return countBy(q.self(), func(raw C.uintptr_t, count *C.uint32_t, e *C.evn_error) C.evn_status {
		return C.evn_quantizer_input_count(raw, count, e)
	})
}

// FindInput gives the place of the input of a name.
func (q *Quantizer) FindInput(name string) (int, error) {
	var bag bag
	defer bag.free()
	text, err := bag.text(name)
	if err != nil {
		return 0, err
	}
	var index C.uint32_t
	err = q.self().with(func(raw C.uintptr_t, e *C.evn_error) C.evn_status {
		return C.evn_quantizer_find_input(raw, text, &index, e)
	})
	return int(index), err
}

// AddBatch runs the float32 model over one calibration batch and keeps what its activations show.
func (q *Quantizer) AddBatch(inputs map[string]*Tensor) error {
	return q.given(inputs, func(raw C.uintptr_t, at *C.evn_tensor, count C.uint32_t, e *C.evn_error) C.evn_status {
		return C.evn_quantizer_add_batch(raw, at, count, e)
	})
}

// GuardOptions says what Guard looks at; the zero value: error and speed, with the library's thresholds.
type GuardOptions struct {
	Flags          uint32
	MinCosine      float64
	MinLayerSQNRdB float64
}

// Guard takes back layers that are not worth it.
func (q *Quantizer) Guard(inputs map[string]*Tensor, options GuardOptions) error {
	given := C.evn_guard_options_initial()
	given.flags, given.min_cosine, given.min_layer_sqnr_db = C.uint32_t(options.Flags), C.double(options.MinCosine), C.double(options.MinLayerSQNRdB)
	return q.given(inputs, func(raw C.uintptr_t, at *C.evn_tensor, count C.uint32_t, e *C.evn_error) C.evn_status {
		return C.evn_quantizer_guard(raw, at, count, &given, e)
	})
}

// Verify compares the float32 and the quantized model over inputs, for the report.
func (q *Quantizer) Verify(inputs map[string]*Tensor) error {
	return q.given(inputs, func(raw C.uintptr_t, at *C.evn_tensor, count C.uint32_t, e *C.evn_error) C.evn_status {
		return C.evn_quantizer_verify(raw, at, count, e)
	})
}

// Finish makes the quantized model.
func (q *Quantizer) Finish() (*Model, error) {
	if _, err := q.self().handle(); err != nil {
		return nil, err
	}
	made, err := q.self().make("model", releaseModel, func(raw C.uintptr_t, out *C.uintptr_t, e *C.evn_error) C.evn_status {
		return C.evn_quantizer_finish(raw, out, e)
	})
	if err != nil {
		return nil, q.bound.caused(err)
	}
	return &Model{made}, nil
}

// Save writes the quantized model as an ONNX file.
func (q *Quantizer) Save(path string) error {
	if _, err := q.self().handle(); err != nil {
		return err
	}
	var bag bag
	defer bag.free()
	text, err := bag.text(path)
	if err != nil {
		return err
	}
	return q.bound.caused(q.self().with(func(raw C.uintptr_t, e *C.evn_error) C.evn_status { return C.evn_quantizer_save(raw, text, e) }))
}

// Report writes what was done.
func (q *Quantizer) Report(format Format) (string, error) {
	return q.self().text(1<<14, func(raw C.uintptr_t, buffer *C.char, capacity C.size_t, size *C.size_t, e *C.evn_error) C.evn_status {
		return C.evn_quantizer_report(raw, C.evn_format(format), buffer, capacity, size, e)
	})
}

"""Quantizer: a float32 model becomes one of 8-bit numbers."""
import contextlib
import ctypes
import json
import sys

from . import _arrays, _callbacks, _raw
from ._library import c_path, c_text, c_texts, check, library, new_error, read_text, refuse_zeros, set_source, sized
from ._object import Object
from ._model import Model, _format

_METHODS = {"minmax": _raw.EVN_CALIBRATION_MINMAX, "percentile": _raw.EVN_CALIBRATION_PERCENTILE,
            "entropy": _raw.EVN_CALIBRATION_ENTROPY, "mse": _raw.EVN_CALIBRATION_MSE}
_ACTIVATIONS = {"uint8": _raw.EVN_DTYPE_UINT8, "int8": _raw.EVN_DTYPE_INT8, None: 0}


_MODES = {"static": _raw.EVN_QUANTIZE_STATIC, "dynamic": _raw.EVN_QUANTIZE_DYNAMIC, "weights": _raw.EVN_QUANTIZE_WEIGHTS,
          "float16": _raw.EVN_QUANTIZE_FLOAT16, "bfloat16": _raw.EVN_QUANTIZE_BFLOAT16}


def _given(budget):
    """A budget as C has it, where 0 is the default: a budget of 0 is the least number above it."""
    return 0 if budget is None else budget or sys.float_info.min


def _progress(user, what, done, total):
    try:
        _callbacks.find(user)(what.decode(), done, total)
        return 0
    except BaseException:  # noqa: B902: nothing may be raised through C
        return 1


_PROGRESS = _callbacks.callback(_raw.evn_quantize_progress, _progress)


class Quantizer(Object):
    """Quantizes one model; evener/quantize.h says how.

        quantizer = evener.Quantizer(runtime, "model.onnx")
        for batch in calibration:
            quantizer.add_batch({"x": batch})
        quantizer.guard({"x": held})
        quantizer.save("model.int8.onnx")
        print(quantizer.verify({"x": other}).report())

    mode        "static", "dynamic", "weights" (alone), "float16" or "bfloat16"; the last three need no calibration
    method      how ranges are chosen: "minmax", "percentile", "entropy", "mse"
    percentile  of "percentile": how many percent of elements stay
    dynamic     MatMul, Gemm and Conv alone, with scales made in each run; no calibration
    activation  "uint8" (the default) or "int8"
    per_tensor  one scale for each weight in place of one for each output channel
    equalize, smooth, correct_bias  cross-layer equalization, SmoothQuant, bias correction; not with dynamic
    bits, block, contrib  of weights: 8 or 4, how many share a scale, MatMulNBits of com.microsoft in place of DequantizeLinear;
                contrib of "dynamic": LSTM too, as DynamicQuantizeLSTM of com.microsoft
    qoperator   static: QLinearConv and other operators on bytes in place of DequantizeLinear and QuantizeLinear around float ones
    external_data  save() writes larger constants into a file beside the other, FILE.data
    keep        nodes that stay float32: globs (or one glob) of their names, or "type:Softmax"
    progress    progress(what, done, total); what it raises cancels, and is lost
    """

    _release = "evn_quantizer_release"

    def __init__(self, runtime, model, *, method="minmax", percentile=None, dynamic=False, activation=None, per_tensor=False, equalize=False,
                 smooth=False, correct_bias=False, mode=None, bits=None, block=None, contrib=False, qoperator=False, keep=(), progress=None,
                 external_dir=None, external_data=False):
        lib, handle, error = library(), _raw.evn_quantizer(), new_error()
        mode = mode or ("dynamic" if dynamic else "static")
        for what, value, known in (("mode", mode, _MODES), ("method", method, _METHODS), ("activation", activation, _ACTIVATIONS)):
            if value not in known:
                raise ValueError(f'{what} must be one of {", ".join(filter(None, known))}, not {value!r}')
        refuse_zeros(bits=bits, block=block, percentile=percentile)
        options = sized(_raw.evn_quantizer_options)
        options.mode, options.weight_bits, options.block_size = _MODES[mode], bits or 0, block or 0
        options.calibration, options.activation = _METHODS[method], _ACTIVATIONS[activation]
        options.percentile = 0 if percentile is None else percentile
        flags = ((per_tensor, _raw.EVN_QUANTIZE_PER_TENSOR), (equalize, _raw.EVN_QUANTIZE_EQUALIZE), (smooth, _raw.EVN_QUANTIZE_SMOOTH),
                 (correct_bias, _raw.EVN_QUANTIZE_CORRECT_BIAS), (contrib, _raw.EVN_QUANTIZE_CONTRIB),
                 (external_data, _raw.EVN_QUANTIZE_EXTERNAL_DATA),
                 (qoperator, _raw.EVN_QUANTIZE_QOPERATOR))
        options.flags = sum(flag for wanted, flag in flags if wanted)
        options.keep, options.keep_count = c_texts(keep)
        path = set_source(options, model, external_dir)
        if progress is not None:
            options.progress, options.progress_release = _PROGRESS, _callbacks.RELEASE
        with _callbacks.lent(progress) if progress is not None else contextlib.nullcontext() as options.progress_user:
            check(lib.evn_quantizer_create(runtime._handle, path, options, handle, error), error)
        self._own(handle)
        self._runtime = runtime._owned
        count = ctypes.c_uint32()
        check(lib.evn_quantizer_input_count(handle, count, error), error)
        self._input_count = count.value

    def _feed(self, function, inputs):
        error = new_error()
        tensors = (_raw.evn_tensor * self._input_count)()
        try:
            for name, value in inputs.items():
                index = ctypes.c_uint32()
                check(self._library.evn_quantizer_find_input(self._handle, c_text(name), index, error), error)
                self._library.evn_tensor_release(tensors[index.value])
                tensors[index.value] = _arrays.copied(self._runtime.value, _arrays.input_array(value, None), error)
            check(function(self._handle, tensors, self._input_count, error), error)
        finally:
            for tensor in tensors:
                self._library.evn_tensor_release(tensor)

    def add_batch(self, inputs):
        """Runs the float32 model over {name: array}, and keeps what its activations show."""
        self._feed(self._library.evn_quantizer_add_batch, inputs)
        return self

    def guard(self, inputs, *, error=True, speed=True, min_cosine=None, min_layer_sqnr_db=None):
        """Takes back layers that lose too much over {name: array}, or that are slower in 8 bits here; report() says which and why.

        error, speed       what is looked at
        min_cosine         of each output with the float32 model's; 0.99
        min_layer_sqnr_db  signal to noise of each layer alone; 10
        """
        if not (error or speed):
            raise ValueError("the guard looks at neither error nor speed")
        options = sized(_raw.evn_guard_options)
        options.flags = (_raw.EVN_GUARD_ERROR if error else 0) | (_raw.EVN_GUARD_SPEED if speed else 0)
        options.min_cosine, options.min_layer_sqnr_db = _given(min_cosine), _given(min_layer_sqnr_db)
        self._feed(lambda handle, tensors, count, out: self._library.evn_quantizer_guard(handle, tensors, count, options, out), inputs)
        return self

    def verify(self, inputs):
        """Compares both models over {name: array}; report() has the figures."""
        self._feed(self._library.evn_quantizer_verify, inputs)
        return self

    def finish(self):
        """The quantized model, as a Model."""
        handle, error = _raw.evn_model(), new_error()
        check(self._library.evn_quantizer_finish(self._handle, handle, error), error)
        model = Model.__new__(Model)
        model._own(handle)
        return model

    def save(self, path):
        """Writes the quantized model as an ONNX file."""
        error = new_error()
        check(self._library.evn_quantizer_save(self._handle, c_path(path), error), error)

    def report(self, format="text"):
        """What was done, as text, JSON, or with format="dict" as a dict; evn_quantizer_report of the C API documents its keys."""
        text = read_text(self._library.evn_quantizer_report, self._handle, _format("json" if format == "dict" else format))
        return json.loads(text) if format == "dict" else text

"""Quantization, and the products of quantized tensors."""
import numpy

from .conv import window
from .draw import numpy_dtype, onnx_type, operator
from .products import exact_scale, power_of_two, scale

_SMALL_FLOATS = ("float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz", "float4e2m1")


def _granularity(draw, rank):
    """"tensor", "axis" or "block", as the opset has them."""
    choices = ["tensor"] + (["axis"] if draw.opset >= 13 and rank > 0 else []) + (["block"] if draw.opset >= 21 and rank > 0 else [])
    return draw.one(*choices)


def _scale_shape(draw, shape, kind):
    """The shape of scales, and the attributes that say so. For blocks the axis has a whole number of them."""
    if kind == "tensor":
        return (), {}
    axis = draw.axis(len(shape))
    if kind == "axis":
        return (shape[axis],), {"axis": axis}
    block = draw.one(*[b for b in (1, 2, 3, 4, 5) if shape[axis] % b == 0])
    dims = list(shape)
    dims[axis] //= block
    return tuple(dims), {"axis": axis, "block_size": block}


@operator("QuantizeLinear")
def quantize_linear(draw):
    dtype, shape = draw.dtype(), draw.shape(zero=0)
    dims, attributes = _scale_shape(draw, shape, _granularity(draw, len(shape)))
    to = draw.dtype(index=2)
    kind = dtype if dtype != "int32" else "float32"
    inputs = [draw.values(shape, dtype, -40, 40, wild=True), scale(draw, dims, 0.05, 1, kind)]
    if draw.maybe(0.7):
        zero = draw.values(dims, to, 0, 20)
        inputs.append(numpy.zeros_like(zero) if to in _SMALL_FLOATS else zero)
    elif draw.opset >= 21 and draw.maybe():
        attributes["output_dtype"] = onnx_type(numpy_dtype(to))
    if to in _SMALL_FLOATS and draw.opset >= 19:
        attributes.update(draw.some(saturate=draw.int(0, 1)))
    return draw.case(inputs, attributes)


@operator("DequantizeLinear")
def dequantize_linear(draw):
    dtype, shape = draw.dtype(), draw.shape(zero=0)
    dims, attributes = _scale_shape(draw, shape, _granularity(draw, len(shape)))
    x = draw.values(shape, dtype, -128, 127, wild=True)
    inputs = [x, scale(draw, dims, 0.05, 1, draw.dtype("float32", "float16", "bfloat16", index=1))]
    if draw.maybe(0.7):
        zero = draw.values(dims, dtype, 0, 20)
        inputs.append(numpy.zeros_like(zero) if dtype in _SMALL_FLOATS or dtype == "int32" else zero)
    return draw.case(inputs, attributes)


@operator("DynamicQuantizeLinear")
def dynamic_quantize(draw):
    low = draw.real(-9, 3)
    return draw.case([draw.values(draw.shape(zero=0), "float32", low, low + draw.real(1, 9))], outputs=3)


@operator("QLinearConv")
def qlinear_conv(draw):
    x_shape, w_shape, attributes = window(draw, ranks=(1, 2))
    types = [draw.dtype("int8", "uint8"), draw.dtype("int8", "uint8", index=3)]
    x, w = draw.values(x_shape, types[0], -99, 99, True), draw.values(w_shape, types[1], -99, 99, True)
    per_channel = draw.one((), (w_shape[0],))
    inputs = [x, exact_scale(draw), draw.values((), types[0], 0, 20), w, exact_scale(draw, per_channel), draw.values(per_channel, types[1], 0, 0),
              power_of_two(draw), draw.values((), types[0], 0, 20)]
    if draw.maybe():
        inputs.append(draw.values((w_shape[0],), "int32", -99, 99))
    return draw.case(inputs, attributes)


@operator("ConvInteger")
def conv_integer(draw):
    x_shape, w_shape, attributes = window(draw, ranks=(1, 2))
    x, w = draw.values(x_shape, draw.dtype(), wild=True), draw.values(w_shape, draw.dtype(index=1), wild=True)
    zeros = [draw.values((), x.dtype, 0, 20), draw.values((), w.dtype, 0, 20)][:draw.int(0, 2)]
    return draw.case([x, w, *zeros], attributes)

"""Operators of one element at a time, and those of inputs that broadcast."""
import numpy

from .draw import FLOATS, INTEGERS, SIGNED, UNSIGNED, numpy_dtype, onnx_type, operator
from .randoms import dropout_in_training

# Where the function is defined; outside all of them must give NaN alike.
_RANGES = {"Acos": (-1.2, 1.2), "Asin": (-1.2, 1.2), "Atanh": (-1.2, 1.2), "Acosh": (0.5, 6), "Log": (-0.5, 9), "Sqrt": (-0.5, 9)}


@operator("Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Cos", "Cosh", "Erf", "Exp", "Floor", "HardSwish", "Identity", "IsNaN",
          "Log", "Mish", "Neg", "Not", "Reciprocal", "Relu", "Round", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Tan",
          "Tanh", "BitwiseNot")
def unary(draw):
    low, high = _RANGES.get(draw.op, (-6, 6))
    return draw.case([draw.values(draw.shape(), draw.dtype(), low, high, wild=draw.op not in ("Sin", "Cos", "Tan"))])


@operator("Celu", "Elu", "HardSigmoid", "LeakyRelu", "Selu", "Shrink", "Swish", "ThresholdedRelu", "Gelu", "IsInf")
def with_attributes(draw):
    dtype = draw.dtype()
    attributes = {
        "Celu": lambda: draw.some(alpha=draw.one(0.5, 1.0, 2.5, -1.5)),
        "Elu": lambda: draw.some(alpha=draw.real(-2, 3)),
        "HardSigmoid": lambda: draw.some(alpha=draw.real(0, 1), beta=draw.real(0, 1)),
        "LeakyRelu": lambda: draw.some(alpha=draw.real(-1, 1)),
        "Selu": lambda: draw.some(alpha=draw.real(0, 2), gamma=draw.real(0, 2)),
        "Shrink": lambda: draw.some(**({"bias": float(draw.int(0, 3))} if dtype not in UNSIGNED else {}), lambd=float(draw.int(0, 3))),
        "Swish": lambda: draw.some(alpha=draw.real(-2, 2)),
        "ThresholdedRelu": lambda: draw.some(alpha=draw.real(-1, 2)),
        "Gelu": lambda: draw.some(approximate=draw.one("none", "tanh")),
        "IsInf": lambda: draw.some(detect_negative=draw.int(0, 1), detect_positive=draw.int(0, 1)),
    }[draw.op]()
    return draw.case([draw.values(draw.shape(), dtype, -6, 6)], attributes)


@operator("Add", "Sub", "Mul", "Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual", "And", "Or", "Xor", "BitwiseAnd", "BitwiseOr",
          "BitwiseXor")
def binary(draw):
    a, b = draw.broadcasting(2)
    dtype = draw.dtype()
    return draw.case([draw.values(a, dtype, wild=True), draw.values(b, dtype, wild=True)])


def _without_zeros(x):
    return numpy.where(x == 0, numpy.ones_like(x), x)


@operator("Div")
def div(draw):
    a, b = draw.broadcasting(2)
    dtype = draw.dtype()
    divisor = draw.values(b, dtype, -9, 9, wild=True)
    dividend = draw.values(a, dtype, -99, 99, wild=True)
    if dtype in INTEGERS:  # by zero, and the smallest number by -1, are undefined
        divisor = _without_zeros(divisor)
        if dtype in SIGNED:
            dividend = numpy.maximum(dividend, numpy.iinfo(dtype).min + 1)
    return draw.case([dividend, divisor])


@operator("Mod")
def mod(draw):
    a, b = draw.broadcasting(2)
    dtype = draw.dtype()
    fmod = 1 if dtype in FLOATS else draw.int(0, 1)
    divisor = draw.values(b, dtype, -9, 9)
    if dtype in INTEGERS:
        divisor = _without_zeros(divisor)
    return draw.case([draw.values(a, dtype, -99, 99), divisor], {"fmod": fmod} if fmod or draw.maybe() else {})


@operator("Pow")
def power(draw):
    a, b = draw.broadcasting(2)
    base, exponent = draw.dtype("float32", "float64", "float16", "bfloat16", "int32", "int64"), draw.dtype(index=1)
    if draw.opset < 12:
        exponent = base
    if base in INTEGERS:
        return draw.case([draw.values(a, base, 1, 4), draw.values(b, exponent, 0, 3)])
    if exponent in INTEGERS:
        return draw.case([draw.values(a, base, -3, 3), draw.values(b, exponent, -3, 3)])
    return draw.case([draw.values(a, base, 0, 4, wild=True), draw.values(b, exponent, -2, 3)])


@operator("PRelu")
def prelu(draw):
    shape, dtype = draw.shape(), draw.dtype()
    return draw.case([draw.values(shape, dtype, wild=True), draw.values(draw.broadcast_to(shape), dtype)])


@operator("BitShift")
def bit_shift(draw):
    a, b = draw.broadcasting(2)
    dtype = draw.dtype(*UNSIGNED) if draw.opset < 28 else draw.dtype()
    bits = numpy.iinfo(dtype).bits
    return draw.case([draw.values(a, dtype, 0, 99, wild=True), draw.values(b, dtype, 0, bits - 1)], {"direction": draw.one("LEFT", "RIGHT")})


def _bits(name):
    return int(name[-1]) if name in ("int4", "uint4", "int2", "uint2") else 4 if name == "float4e2m1" else 8 * numpy_dtype(name).itemsize


@operator("BitCast")
def bit_cast(draw):
    dtype = draw.dtype()
    wanted = [t for t in draw._dtypes if _bits(t) == _bits(dtype) and (t == "bool") == (dtype == "bool")]
    return draw.case([draw.values(draw.shape(), dtype)], {"to": onnx_type(numpy_dtype(draw.one(*wanted)))})


@operator("Min", "Max", "Sum", "Mean")
def variadic(draw):
    dtype = draw.dtype()
    return draw.case([draw.values(shape, dtype, wild=True) for shape in draw.broadcasting(draw.int(1, 4))])


@operator("Where")
def where(draw):
    dtype = draw.dtype(index=1)
    c, a, b = draw.broadcasting(3)
    return draw.case([draw.values(c, "bool"), draw.values(a, dtype, wild=True), draw.values(b, dtype, wild=True)])


@operator("Clip")
def clip(draw):
    dtype, shape = draw.dtype(), draw.shape()
    low, high = sorted([draw.real(-3, 3), draw.real(-3, 3)])
    if dtype in UNSIGNED:
        low, high = abs(low), abs(low) + 2
    x = draw.values(shape, dtype, -6, 6, wild=True)
    if draw.opset < 11:
        return draw.case([x], draw.some(min=low, max=high))
    bounds = [numpy.asarray(bound).astype(numpy_dtype(dtype)) if draw.maybe(0.7) else None for bound in (low, high)]
    while bounds and bounds[-1] is None:
        bounds.pop()
    return draw.case([x, *bounds])


@operator("Dropout")
def dropout(draw):
    x = draw.values(draw.shape(), draw.dtype(), wild=True)
    if draw.opset < 12:
        return draw.case([x], draw.some(ratio=draw.real(0, 0.9)), draw.int(1, 2) if draw.opset >= 10 else 1)
    if draw.maybe(0.3):
        return dropout_in_training(draw)
    ratio = numpy.array(draw.real(0, 0.9), "float32")
    return draw.case([x, ratio, numpy.array(False)][:draw.int(1, 3)], draw.some(seed=3), draw.int(1, 2))


@operator("CastLike")
def cast_like(draw):
    from_type, to_type = draw.dtype(*FLOATS, *INTEGERS, "bool"), draw.one(*FLOATS, *INTEGERS, "bool")
    return draw.case([draw.values(draw.shape(), from_type, 0, 90), draw.values((1,), to_type)])


@operator("Cast")
def cast(draw):
    from_type = draw.dtype()
    to_type = draw.one(*[t for t in draw._dtypes])
    x = draw.values(draw.shape(), from_type, 0 if to_type in UNSIGNED else -90, 90, wild=to_type in FLOATS)
    attributes = {"to": onnx_type(numpy_dtype(to_type))}
    if "float8" in to_type and draw.opset >= 19:
        attributes.update(draw.some(saturate=draw.int(0, 1)))
    return draw.case([x], attributes)

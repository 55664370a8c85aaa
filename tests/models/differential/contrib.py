"""com.microsoft's operators; ONNX Runtime is the only judge."""
import numpy

from .conv import window
from .draw import in_half_too, operator
from .products import exact_scale, power_of_two

MICROSOFT = "com.microsoft"


def _quantized(draw, shape, dtype, zero=True):
    """A tensor, its scale of few bits and its zero point."""
    return [draw.values(shape, dtype, -99, 99, True), exact_scale(draw), draw.values((), dtype, 0, 30) if zero else None]


def _dtype(draw):
    return draw.one("uint8", "int8")


@operator("QLinearAdd", "QLinearMul", domain=MICROSOFT)
def quantized_binary(draw):
    (a, b), dtype = draw.broadcasting(2), _dtype(draw)
    a, b = ([max(n, 1) for n in shape] for shape in (a, b))
    return draw.case([*_quantized(draw, a, dtype), *_quantized(draw, b, dtype), power_of_two(draw), draw.values((), dtype, 0, 30)])


@operator("QLinearSigmoid", "QLinearLeakyRelu", domain=MICROSOFT)
def quantized_unary(draw):
    dtype, zeros = _dtype(draw), draw.maybe(0.8)
    x = _quantized(draw, draw.shape(1, zero=0), dtype, zeros)
    y = [numpy.array(0.0037, "float32")] if draw.op == "QLinearSigmoid" else [power_of_two(draw)]
    attributes = draw.some(alpha=0.25) if draw.op == "QLinearLeakyRelu" else {}
    return draw.case([*x, *y, draw.values((), dtype, 0, 30) if zeros else None], attributes)  # None: ONNX Runtime aborts without the fifth


@operator("QLinearConcat", domain=MICROSOFT)
def quantized_concat(draw):
    shape, dtype = draw.shape(1, zero=0), _dtype(draw)
    axis, parts = draw.axis(len(shape)), []
    for _ in range(draw.int(1, 3)):
        part = list(shape)
        part[axis] = draw.int(1, 4)
        parts += _quantized(draw, part, dtype)
    return draw.case([power_of_two(draw), draw.values((), dtype, 0, 30), *parts], {"axis": axis}, constant=range(2 + len(parts)))


@operator("QLinearGlobalAveragePool", domain=MICROSOFT)
def quantized_average(draw):
    shape, dtype = draw.shape(4, 4, zero=0), _dtype(draw)
    last = draw.int(0, 1)
    count = int(numpy.prod(shape[1:-1] if last else shape[2:]))
    # ONNX Runtime multiplies by 1 / count in float32: half-way between two steps that decides, unless it is exact. We divide exactly.
    tolerance = (0, 0, 1) if count & (count - 1) else None
    return draw.case([*_quantized(draw, shape, dtype), power_of_two(draw), draw.values((), dtype, 0, 30)], {"channels_last": last}, tolerance=tolerance)


@operator("QLinearAveragePool", domain=MICROSOFT)
def quantized_window_average(draw):
    shape, dtype = (draw.int(1, 2), draw.int(1, 5), draw.int(4, 8), draw.int(4, 8)), _dtype(draw)
    kernel = [draw.int(1, 3), draw.int(1, 3)]
    pads = [draw.int(0, k - 1) for k in kernel * 2]
    attributes = {"kernel_shape": kernel, "pads": pads, "strides": [draw.int(1, 2), draw.int(1, 2)], "count_include_pad": draw.int(0, 1)}
    # ONNX Runtime divides in float32 before it rounds: half-way between two steps that decides.
    return draw.case([*_quantized(draw, shape, dtype), power_of_two(draw), draw.values((), dtype, 0, 30)], attributes, tolerance=(0, 0, 1))


@operator("QLinearWhere", domain=MICROSOFT)
def quantized_where(draw):
    shapes, dtype = [[max(n, 1) for n in shape] for shape in draw.broadcasting(3)], _dtype(draw)
    operands = [*_quantized(draw, shapes[1], dtype), *_quantized(draw, shapes[2], dtype)]
    case = draw.case([draw.values(shapes[0], "bool"), *operands, power_of_two(draw), draw.values((), dtype, 0, 30)])
    case.constant = set()  # ONNX Runtime crashes where some are constants
    return case


@operator("QGemm", domain=MICROSOFT)
def quantized_gemm(draw):
    m, k, n, types = draw.int(1, 6), draw.int(1, 9), draw.int(1, 6), draw.one(("uint8", "uint8"), ("uint8", "int8"), ("int8", "int8"))
    trans_a, trans_b = draw.int(0, 1), draw.int(0, 1)
    a = _quantized(draw, (k, m) if trans_a else (m, k), types[0])
    b = _quantized(draw, (n, k) if trans_b else (k, n), types[1])
    c = draw.values(draw.one((n,), (1, n), (m, n)), "int32", -99, 99) if draw.maybe() else None
    inputs = [*a, *b, c] + ([power_of_two(draw), draw.values((), types[0], 0, 30)] if draw.maybe() else [])
    while inputs[-1] is None:
        inputs.pop()
    return draw.case(inputs, {"transA": trans_a, "transB": trans_b, **draw.some(alpha=0.5)})


@operator("MatMulIntegerToFloat", domain=MICROSOFT)
def integer_product(draw):
    batch, m, k, n = draw.shape(0, 2, zero=0), draw.int(1, 6), draw.int(1, 9), draw.int(1, 6)
    a, b = _quantized(draw, (*batch, m, k), _dtype(draw)), _quantized(draw, (k, n), _dtype(draw))
    if a[0].dtype == "int8":
        b = _quantized(draw, (k, n), "int8")
    zeros = [a[2], b[2]] if draw.maybe() else []
    return draw.case([a[0], b[0], a[1], b[1], *zeros])


@operator("DynamicQuantizeMatMul", domain=MICROSOFT)
def dynamic_product(draw):
    batch, m, k, n = draw.shape(0, 1, zero=0), draw.int(1, 6), draw.int(2, 9), draw.int(1, 6)
    b = _quantized(draw, (k, n), _dtype(draw))
    return draw.case([draw.values((*batch, m, k)), b[0], b[1], b[2]][:draw.int(3, 4)])


@operator("FusedMatMul", domain=MICROSOFT)
@in_half_too
def fused_product(draw):
    m, k, n, batch = draw.int(1, 6), draw.int(1, 9), draw.int(1, 6), draw.shape(0, 2, zero=0)
    trans_a, trans_b = draw.int(0, 1), draw.int(0, 1)
    a, b = (*batch, *((k, m) if trans_a else (m, k))), (*(batch if draw.maybe() else ()), *((n, k) if trans_b else (k, n)))
    dtype = draw.one("float32", "float64")
    return draw.case([draw.values(a, dtype), draw.values(b, dtype)], {"transA": trans_a, "transB": trans_b, **draw.some(alpha=draw.real(-2, 2))})


@operator("FusedGemm", domain=MICROSOFT)
def fused_gemm(draw):
    m, k, n = draw.int(1, 6), draw.int(1, 9), draw.int(1, 6)
    trans_a, trans_b = draw.int(0, 1), draw.int(0, 1)
    inputs = [draw.values((k, m) if trans_a else (m, k)), draw.values((n, k) if trans_b else (k, n)), draw.values(draw.one((m, n), (n,), (1, n), ()))]
    attributes = {"transA": trans_a, "transB": trans_b, "activation": draw.one("Relu", "Sigmoid", "Tanh"), **draw.some(alpha=draw.real(-2, 2))}
    return draw.case(inputs[:draw.int(2, 3)], attributes, tolerance=(1e-4, 1e-5, 1e-6))


@operator("FusedConv", domain=MICROSOFT)
def fused_conv(draw):
    x, w, attributes = window(draw, ranks=(1, 2))
    inputs = [draw.values(x), draw.values(w)] + ([draw.values((w[0],))] if draw.maybe() else [])
    return draw.case(inputs, {**attributes, "activation": draw.one("Relu", "Sigmoid", "Tanh")}, tolerance=(1e-4, 1e-5, 1e-6))


@operator("Gelu", "QuickGelu", "FastGelu", "BiasGelu", domain=MICROSOFT)
@in_half_too
def gelu(draw):
    shape = draw.shape(1, zero=0)
    inputs = [draw.values(shape, low=-6, high=6)]
    if draw.op == "BiasGelu" or draw.op == "FastGelu" and draw.maybe():
        inputs.append(draw.values(shape[-1:]))
    return draw.case(inputs, draw.some(alpha=draw.real(0.5, 2)) if draw.op == "QuickGelu" else {}, tolerance=(1e-4, 1e-5, 1e-6))


@operator("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", domain=MICROSOFT)
@in_half_too
def skip_layer_norm(draw):
    batch, steps, width = draw.int(1, 3), draw.int(1, 4), draw.int(2, 9)
    x = draw.spread((batch, steps, width), "float32")
    skip = draw.values(draw.one((batch, steps, width), (1, steps, width), (steps, width)), low=-0.01, high=0.01)
    beta = [draw.values((width,))] if draw.op == "SkipLayerNormalization" else []
    bias = [draw.values((width,), low=-0.01, high=0.01)] if draw.maybe() else []
    return draw.case([x, skip, draw.values((width,)), *beta, *bias], draw.some(epsilon=1e-3))


@operator("SimplifiedLayerNormalization")
@in_half_too
def simplified_layer_norm(draw):
    shape = draw.shape(1, 4, 2, zero=0)
    axis = draw.axis(len(shape))
    return draw.case([draw.values(shape), draw.values(shape[axis:])], {"axis": axis, **draw.some(epsilon=1e-3)})


@operator("Inverse", domain=MICROSOFT)
def inverse(draw):
    n, dtype = draw.int(1, 5), draw.one("float32", "float64")
    x = draw.values((*draw.shape(0, 2, zero=0), n, n), dtype, -1, 1) + numpy.eye(n, dtype=dtype) * n
    return draw.case([x], tolerance=(1e-3, 1e-4))


@operator("Trilu", domain=MICROSOFT)
def trilu(draw):
    x = draw.values(draw.shape(2, zero=0), draw.one("float32", "float64", "int64", "bool"))
    return draw.case([x, numpy.array(draw.int(-6, 6), "int64")][:draw.int(1, 2)], draw.some(upper=draw.int(0, 1)))


@operator("RotaryEmbedding", domain=MICROSOFT)
@in_half_too
def rotary_embedding(draw):
    batch, heads, steps, half, length = draw.int(1, 2), draw.int(1, 3), draw.int(1, 4), draw.one(4, 8), draw.int(4, 9)
    x = draw.values(draw.one((batch, steps, heads * half * 2), (batch, heads, steps, half * 2)))
    positions = draw.one(draw.rng.integers(0, length, (batch, steps)), numpy.array([length - steps])).astype("int64")
    return draw.case([x, positions, *(draw.values((length, half), low=-1, high=1) for _ in range(2))], draw.some(interleaved=draw.int(0, 1)))


@operator("MatMulNBits", domain=MICROSOFT)
@in_half_too
def block_product(draw):
    bits, block, n = draw.one(4, 8), draw.one(16, 32), draw.int(1, 6)
    k = block * draw.int(1, 3) - draw.one(0, 0, 8)
    blocks = -(-k // block)
    weights = draw.values((n, blocks, block * bits // 8), "uint8", 0, 255)
    inputs = [draw.values((*draw.shape(1, 2, zero=0), k)), weights, exact_scale(draw, (n, blocks))]
    if draw.maybe():
        inputs.append(draw.values((n, -(-blocks * bits // 8)), "uint8", 0, 255))
    return draw.case(inputs, {"K": k, "N": n, "bits": bits, "block_size": block}, constant=range(1, len(inputs)))

"""Cases that reach the optimized kernels of the CPU, by the kernels' names: sizes about the edges of blocks, constants to be packed, graphs
that passes make one node of. What is not here is reached by the operator's own generator.

Each is run by Evener alone in its model, so that explain says of all its nodes which kernel ran them, and judged by ONNX Runtime, those of
one node by the reference too.
"""
import dataclasses

import numpy
import onnx

from .draw import Draw
from .products import exact_scale, power_of_two

REACHES = {}  # kernel -> (operator, domain, opset, function of a Draw)

# Kernels that no judge reaches, and why.
NOT_REACHED = {
    "matmul_nbits_dot": "ONNX Runtime quantizes rows for some shapes only; tests/backends/cpu/nbits and the conformance tests have the reference",
    **{f"conv_{of}": "no model has the operator; tests/backends/cpu/conv_gradient has the reference, tests/models/test_gradient.py other judges"
       for of in ("input_gradient", "input_gradient_depthwise", "input_gradient_pointwise", "input_gradient_winograd", "weight_gradient",
                  "weight_gradient_depthwise", "weight_gradient_winograd")},
    **{f"{of}_{precision}": "runs with rounded operands in graphs of training; tests/backends/cpu/training has the reference, tests/training other judges"
       for of in ("conv_dynamic_weight", "conv_input_gradient", "conv_weight_gradient", "conv_transpose_dynamic_weight", "gemm_dynamic", "matmul_dynamic")
       for precision in ("bf16", "half")},
    **{name: "no model has the operator; tests/backends/cpu/training has the reference, tests/models/test_gradient.py and tests/training other judges"
       for name in ("attention_gradient", "lstm_gradient", "gru_gradient", "rnn_gradient", "average_pool_gradient", "batch_norm_gradient", "cross_entropy_gradient", "erf_gradient", "gather_gradient", "gelu_gradient", "gradient_norm",
                    "hard_swish_gradient", "layer_norm_gradient", "loss_gradient", "max_pool_gradient", "optimizer_step", "relu_gradient", "repeat_to",
                    "sigmoid_gradient", "sum_to", "tanh_gradient")},
    "identity": "Identity is a view of its input, or taken out of the graph; tests/backends/cpu has it",
}


def reaches(*kernels, op, domain="", opset=21):
    """Registers a function that draws cases for these kernels."""
    def register(function):
        REACHES.update({kernel: (op, domain, opset, function) for kernel in kernels})
        return function
    return register


def drawn(kernel, rng):
    op, domain, opset, function = REACHES[kernel]
    return function(Draw(rng, domain, op, opset, ()))


def size(draw, low, high):
    """A dim: any, or one about a multiple of a vector."""
    edges = [n for step in (8, 16, 32, 64) for m in range(step, high + 1, step) for n in (m - 1, m, m + 1) if low <= n <= high]
    return draw.one(*edges) if edges and draw.maybe() else draw.int(low, high)


def _conv(draw, x, w, bias=True, **attributes):
    """A convolution with packed weights. The second dim of the weight may be left out: it is that of the image."""
    w = [x[1] if n is None else n for n in w]
    inputs = [draw.values(x, low=-1, high=1), draw.values(w, low=-1, high=1)]
    if bias and draw.maybe():
        inputs.append(draw.values((w[0],), low=-1, high=1))
    case = draw.case(inputs, attributes)
    return dataclasses.replace(case, constant={1, 2} & set(range(len(inputs))))


def _plane(draw, low=6, high=33):
    return size(draw, low, high), size(draw, low, high)


@reaches("cast", op="Cast")
def cast(draw):
    kind, to = draw.one(("uint8", 1), ("int8", 1), ("bool", 1), ("int32", 1), ("int64", 1), ("float32", 9), ("float32", 6), ("float32", 7), ("int32", 7),
                        ("int64", 6), ("bool", 7), ("bool", 6), ("int64", 9), ("int32", 9))
    return draw.case([draw.values((size(draw, 1, 130),), kind)], {"to": to})


@reaches("cast_to_half", op="Cast")
def cast_to_half(draw):
    return draw.case([draw.values((size(draw, 1, 130),))], {"to": 10})


@reaches("cast_from_half", op="Cast")
def cast_from_half(draw):
    return draw.case([draw.values((size(draw, 1, 130),), "float16")], {"to": 1})


@reaches("conv_gemm", op="Conv")
def conv_gemm(draw):
    """The weight is an input, 1 x 1."""
    groups = draw.one(1, 1, 2)
    channels = size(draw, 2, 24)
    case = _conv(draw, (draw.int(1, 2), channels * groups, *_plane(draw)), (size(draw, 1, 40) * groups, channels, 1, 1), group=groups)
    return dataclasses.replace(case, constant=set())


@reaches("conv_dynamic_weight", op="Conv")
def conv_dynamic_weight(draw):
    """The weight is an input."""
    case = _conv(draw, (draw.int(1, 2), size(draw, 2, 24), *_plane(draw)), (size(draw, 1, 40), None, draw.int(2, 3), draw.int(1, 3)),
                 strides=[draw.one(1, 1, 2)] * 2, pads=[draw.int(0, 1)] * 4)
    return dataclasses.replace(case, constant=set())


@reaches("conv_dynamic_weight_winograd", op="Conv")
def conv_dynamic_weight_winograd(draw):
    """The weight is an input."""
    shape = draw.int(2, 3), size(draw, 48, 66), draw.int(16, 24), draw.int(16, 24)
    case = _conv(draw, shape, (size(draw, 56, 70), None, 3, 3), pads=[draw.int(1, 2)] * 4)
    return dataclasses.replace(case, constant=set())


@reaches("conv_transpose_dynamic_weight", op="ConvTranspose")
def conv_transpose_dynamic_weight(draw):
    """The weight is an input."""
    channels, groups = size(draw, 2, 24), draw.one(1, 1, 2)
    case = _conv(draw, (draw.int(1, 2), channels * groups, *_plane(draw, 4, 16)), (channels * groups, size(draw, 1, 20), draw.int(1, 4), draw.int(1, 3)), bias=False,
                 group=groups, strides=[draw.int(1, 3)] * 2, dilations=[draw.int(1, 2)] * 2)
    return dataclasses.replace(case, constant=set())


@reaches("conv_depthwise", op="Conv")
def conv_depthwise(draw):
    channels = size(draw, 2, 40)
    case = _conv(draw, (draw.int(1, 2), channels, *_plane(draw)), (channels, 1, draw.int(1, 5), draw.int(1, 5)), group=channels, pads=[draw.int(0, 2)] * 4)
    return dataclasses.replace(case, constant=set())


@reaches("conv_depthwise_nhwc", op="Conv")
def conv_depthwise_nhwc(draw):
    channels, stride = size(draw, 8, 80), draw.int(1, 2)
    return _conv(draw, (draw.int(1, 2), channels, *_plane(draw, 9)), (channels, 1, draw.int(1, 5), draw.int(1, 5)), group=channels, strides=[stride, stride],
                 pads=[draw.int(0, 2)] * 4, dilations=[draw.int(1, 2)] * 2)


@reaches("conv_nhwc", op="Conv")
def conv_nhwc(draw):
    """Products of pixels and filters: 1 x 1 and others, with strides, dilations and groups, of any number of channels."""
    groups = draw.one(1, 1, 1, 2)
    kernel = (1, 1) if groups > 1 else draw.one((1, 1), (1, 1), (3, 3), (5, 3), (1, 7))
    channels, filters = size(draw, 8, 72), size(draw, 8, 72)
    stride = draw.int(1, 2) if kernel != (3, 3) else 2
    return _conv(draw, (draw.int(1, 3), channels * groups, *_plane(draw)), (filters * groups, channels, *kernel), group=groups, strides=[stride, stride],
                 pads=[draw.int(0, 1)] * 4)


@reaches("conv_grouped", op="Conv")
def conv_grouped(draw):
    """Groups of some channels, two of which are joined where they have at most eight."""
    joined = draw.maybe(0.4)
    groups = 2 * draw.int(1, 3) if joined else draw.int(2, 4)
    channels, filters = (draw.int(6, 8), draw.int(6, 16)) if joined else (size(draw, 16, 40), size(draw, 16, 64))
    filters += filters == channels and channels <= 16  # not those of conv_small_groups
    return _conv(draw, (draw.int(1, 2), channels * groups, *_plane(draw, 9)), (filters * groups, channels, draw.int(2, 3), draw.int(1, 3)), group=groups,
                 strides=[draw.int(1, 2)] * 2, pads=[draw.int(0, 2) for _ in range(4)], dilations=[draw.int(1, 2)] * 2)


@reaches("conv_small_groups", op="Conv")
def conv_small_groups(draw):
    """Vectors have whole groups, or groups whole vectors."""
    channels, groups = draw.one(2, 4, 8, 16), 16 * draw.int(1, 3)
    groups //= draw.one(1, min(channels, 8))
    return _conv(draw, (draw.int(1, 2), channels * groups, *_plane(draw, 9)), (channels * groups, channels, draw.int(1, 5), 3), group=groups,
                 strides=[draw.int(1, 2)] * 2, pads=[draw.int(0, 2) for _ in range(4)], dilations=[draw.int(1, 2), 1])


@reaches("conv_winograd", op="Conv")
def conv_winograd(draw):
    """Tiles of 4 x 4. Where only the run tells the size of images also with many channels and small ones."""
    if draw.maybe(0.25):
        return dataclasses.replace(_winograd_of_many_channels(draw, 256), open_dims=True)
    return _conv(draw, (draw.int(1, 2), size(draw, 16, 70), *(size(draw, 14, 40) for _ in range(2))), (size(draw, 16, 70), None, 3, 3),
                 pads=[draw.int(0, 1) for _ in range(4)])


@reaches("conv_winograd_small", op="Conv")
def conv_winograd_small(draw):
    """Tiles of 2 x 2, with many channels and small images."""
    return dataclasses.replace(_winograd_of_many_channels(draw, draw.one(256, 260)), open_dims=False)


def _winograd_of_many_channels(draw, filters):
    return _conv(draw, (draw.int(1, 2), 256, draw.int(9, 16), draw.int(9, 16)), (filters, None, 3, 3), pads=[draw.int(0, 1) for _ in range(4)])


@reaches("conv_few_channels", op="Conv")
def conv_few_channels(draw):
    kernel, stride = draw.one((3, 3), (5, 5), (7, 7), (3, 9)), draw.int(1, 2)
    return _conv(draw, (draw.int(1, 2), draw.int(1, 4), *_plane(draw, 12, 48)), (size(draw, 6, 70), None, *kernel), strides=[stride, stride], pads=[draw.int(0, 2)] * 4)


def _cascade_of_bytes(draw):
    """The same of bytes, whose rounding nothing decides."""
    side, channels, filters = draw.int(130, 150), draw.one(16, 24, 32), size(draw, 8, 40)
    shapes = (channels, 3, 3, 3), (channels, 1, 3, 3), (filters, channels, 1, 1)
    inputs = [_bytes(draw, (1, 3, 2 * side, 2 * side), "uint8", 0, 255), exact_scale(draw), _zero(draw, "uint8")]
    for shape in shapes:
        inputs += [_bytes(draw, shape, "int8", -99, 99), exact_scale(draw), numpy.int8(0), power_of_two(draw) * 32, _zero(draw, "uint8")]
    attributes = {"strides": [2, 2], "pads": [1] * 4}, {"group": channels, "pads": [1] * 4}, {}

    def nodes(prefix, inputs, outputs):
        made, value = [], list(inputs[:3])
        for part, more in enumerate(attributes):
            weight, w_scale, w_zero, scale, zero = inputs[3 + 5 * part:8 + 5 * part]
            to = outputs[0] if part == 2 else f"{prefix}{part}"
            made.append(onnx.helper.make_node("QLinearConv", [*value, weight, w_scale, w_zero, scale, zero], [to], **more))
            value = [to, scale, zero]
        return made
    return dataclasses.replace(draw.graph(inputs, nodes, {"bytes": True}), constant=set(range(1, len(inputs))), open_dims=False)


@reaches("conv_cascade", op="Conv")
def conv_cascade(draw):
    """A large image, of floats or of bytes, goes through a first layer, a depthwise one and one of 1 x 1, a few lines at a time."""
    if draw.maybe(0.4):
        return _cascade_of_bytes(draw)
    side, channels, filters = draw.int(112, 140), draw.one(16, 24, 32), size(draw, 8, 40)
    x = draw.values((draw.int(1, 2), 3, 2 * side, 2 * side), low=-1, high=1)
    first, depth, last = (draw.values(shape, low=-1, high=1) for shape in ((channels, 3, 3, 3), (channels, 1, 3, 3), (filters, channels, 1, 1)))
    step = draw.int(1, 2)

    def nodes(prefix, inputs, outputs):
        made = [onnx.helper.make_node("Conv", [inputs[0], inputs[1]], [f"{prefix}a"], strides=[2, 2], pads=[1, 1, 1, 1]),
                onnx.helper.make_node("Relu", [f"{prefix}a"], [f"{prefix}b"]),
                onnx.helper.make_node("Conv", [f"{prefix}b", inputs[2]], [f"{prefix}c"], group=channels, strides=[step, step], pads=[1, 1, 1, 1]),
                onnx.helper.make_node("Clip", [f"{prefix}c"], [f"{prefix}d"]),
                onnx.helper.make_node("Conv", [f"{prefix}d", inputs[3]], outputs)]
        return made
    return dataclasses.replace(draw.graph([x, first, depth, last], nodes, {"step": step}), constant={1, 2, 3}, open_dims=False)


@reaches("conv_transpose_gemm", op="ConvTranspose")
def conv_transpose_gemm(draw):
    channels, groups = size(draw, 2, 40), draw.one(1, 1, 2)
    stride = draw.int(1, 2)
    return _conv(draw, (draw.int(1, 2), channels * groups, *_plane(draw, 4, 16)), (channels * groups, size(draw, 1, 20), 3, 3), bias=False, group=groups, strides=[stride] * 2,
                 pads=[1, 1, 1, 1])


@reaches("conv_transpose_blocks", op="ConvTranspose")
def conv_transpose_blocks(draw):
    channels, stride = size(draw, 2, 24), draw.int(2, 3)
    return _conv(draw, (draw.int(1, 2), channels * 2, *_plane(draw, 4, 16)), (channels * 2, size(draw, 1, 20), stride, stride), bias=False, group=2, strides=[stride] * 2)


@reaches("conv_transpose_nhwc", op="ConvTranspose")
def conv_transpose_nhwc(draw):
    channels, stride = size(draw, 2, 48), draw.int(2, 3)
    return _conv(draw, (draw.int(1, 2), channels, *_plane(draw, 4, 16)), (channels, size(draw, 1, 40), stride, stride), bias=False, strides=[stride] * 2)


def _product(draw, least=1):
    return size(draw, 1, 130), size(draw, least, 200), size(draw, least, 130)


def _unit(draw, shape):
    return draw.values(shape, low=-1, high=1)


@reaches("matmul_packed", op="MatMul")
def matmul_packed(draw):
    m, k, n = _product(draw)
    return dataclasses.replace(draw.case([_unit(draw, (*draw.shape(0, 2, high=3, zero=0), m, k)), _unit(draw, (k, n))]), constant={1})


@reaches("matmul_gemm", op="MatMul")
def matmul_gemm(draw):
    m, k, n = _product(draw)
    batch = draw.shape(0, 2, high=3, zero=0)
    return dataclasses.replace(draw.case([_unit(draw, (*batch, m, k)), _unit(draw, (*batch, k, n))]), constant=set())


@reaches("gemm_packed", op="Gemm")
def gemm_packed(draw):
    m, k, n = _product(draw)
    transposed = draw.int(0, 1)
    inputs = [_unit(draw, (m, k)), _unit(draw, (n, k) if transposed else (k, n)), _unit(draw, draw.one((n,), (1, n), (m, n), (1,)))]
    return dataclasses.replace(draw.case(inputs, {"transB": transposed, **draw.some(alpha=draw.real(0.5, 2), beta=draw.real(0.5, 2))}), constant={1})


@reaches("gemm_gemm", op="Gemm")
def gemm_gemm(draw):
    m, k, n = _product(draw)
    a, b = draw.int(0, 1), draw.int(0, 1)
    inputs = [_unit(draw, (k, m) if a else (m, k)), _unit(draw, (n, k) if b else (k, n)), _unit(draw, draw.one((n,), (1, n), (m, n), (1,)))]
    return dataclasses.replace(draw.case(inputs, {"transA": a, "transB": b, **draw.some(beta=draw.real(0.5, 2))}), constant=set())


@reaches("matmul_openblas", op="MatMul")
def matmul_openblas(draw):
    m, k, n = _product(draw)
    return draw.case([_unit(draw, (m, k)).astype("float64"), _unit(draw, (k, n)).astype("float64")])


@reaches("gemm_openblas", op="Gemm")
def gemm_openblas(draw):
    m, k, n = _product(draw)
    return draw.case([_unit(draw, (m, k)).astype("float64"), _unit(draw, (k, n)).astype("float64"), _unit(draw, (n,)).astype("float64")])


@reaches("matmul_bf16", "matmul_fp16", op="MatMul")
def matmul_half(draw):
    m, k, n = _product(draw, 16)
    return dataclasses.replace(draw.case([_unit(draw, (*draw.shape(0, 1, high=3, zero=0), m, k)), _unit(draw, (k, n))]), constant={1})


@reaches("gemm_bf16", "gemm_fp16", op="Gemm")
def gemm_half(draw):
    m, k, n = _product(draw, 16)
    transposed = draw.int(0, 1)
    inputs = [_unit(draw, (m, k)), _unit(draw, (n, k) if transposed else (k, n)), _unit(draw, (n,))]
    return dataclasses.replace(draw.case(inputs, {"transB": transposed}), constant={1, 2})


@reaches("conv_bf16", "conv_fp16", op="Conv")
def conv_half(draw):
    channels, kernel = size(draw, 16, 64), draw.one(1, 3)
    return _conv(draw, (draw.int(1, 2), channels, *_plane(draw)), (size(draw, 16, 64), channels, kernel, kernel), pads=[kernel // 2] * 4)


@reaches("lstm_gemm", "lstm_bf16", op="LSTM")
@reaches("gru_gemm", "gru_bf16", op="GRU")
@reaches("rnn_gemm", "rnn_bf16", op="RNN")
def recurrent(draw):
    """W and R are constants, of more than a panel."""
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[draw.op]
    direction = draw.one("forward", "reverse", "bidirectional")
    ways = 2 if direction == "bidirectional" else 1
    steps, batch, width, hidden = draw.int(1, 12), size(draw, 1, 20), size(draw, 1, 40), size(draw, 1, 40)
    inputs = [_unit(draw, (steps, batch, width)), *(draw.values((ways, gates * hidden, n), low=-0.3, high=0.3) for n in (width, hidden)),
              _unit(draw, (ways, 2 * gates * hidden)) if draw.maybe() else None, None, _unit(draw, (ways, batch, hidden)) if draw.maybe() else None]
    case = draw.case(inputs, {"hidden_size": hidden, "direction": direction, **(draw.some(linear_before_reset=1) if draw.op == "GRU" else {})},
                     draw.int(1, 3 if draw.op == "LSTM" else 2))
    return dataclasses.replace(case, constant={1, 2})


def _attention(draw, spread):
    batch, heads, queries, keys, width = draw.int(1, 2), draw.int(1, 3), size(draw, 16, 140), size(draw, 16, 140), size(draw, 4, 64)
    q, k, v = (draw.values((batch, heads, length, width), low=-spread, high=spread) for length in (queries, keys, keys))
    mask = [draw.values((1, 1, queries, keys), low=-2, high=0)] if draw.maybe() else []
    scale = numpy.float32(1 / numpy.sqrt(width))

    def nodes(prefix, inputs, outputs):
        made = [onnx.helper.make_node("Transpose", [inputs[1]], [f"{prefix}t"], perm=[0, 1, 3, 2]),
                onnx.helper.make_node("MatMul", [inputs[0], f"{prefix}t"], [f"{prefix}s"]),
                onnx.helper.make_node("Mul", [f"{prefix}s", inputs[3]], [f"{prefix}m"])]
        last = f"{prefix}m"
        if mask:
            made.append(onnx.helper.make_node("Add", [last, inputs[4]], [f"{prefix}n"]))
            last = f"{prefix}n"
        return made + [onnx.helper.make_node("Softmax", [last], [f"{prefix}p"], axis=-1), onnx.helper.make_node("MatMul", [f"{prefix}p", inputs[2]], outputs)]
    return dataclasses.replace(draw.graph([q, k, v, numpy.array(scale), *mask], nodes, {"mask": bool(mask)}), constant={3}, open_dims=False)


@reaches("fused_attention", op="Attention")
def fused_attention(draw):
    return _attention(draw, 2)


@reaches("fused_attention_bf16", op="Attention")
def fused_attention_half(draw):
    return _attention(draw, 1)


def attention_bound(case, u):
    """How far attention of rounded operands may be off. A score q k^T / sqrt(d) is off by d = ((1 + u)^2 - 1) times that of the magnitudes; a
    weight exp(s) / sum exp(s) then by a factor between e^-2d and e^2d, and 1 + u for its own rounding; a value by 1 + u. As weights sum to
    1, the output is off by no more than e^2d (1 + u)^2 - 1 of the largest value."""
    q, k, v, scale = (x.astype("float64") for x in case.inputs[:4])
    off = (2 * u + u * u) * float(scale) * (numpy.abs(q) @ numpy.abs(k).swapaxes(-1, -2)).max()
    return numpy.full((*q.shape[:-1], v.shape[-1]), (numpy.exp(2 * off) * (1 + u) ** 2 - 1) * numpy.abs(v).max())


def _bytes(draw, shape, dtype, low=-99, high=99):
    return draw.values(shape, dtype, low, high)


def _zero(draw, dtype):
    return draw.values((), dtype, 0, 20)


def _quantized_conv(draw, x, w, bias=True, symmetric=False, **attributes):
    """A QLinearConv whose rounding nothing decides: scales of few bits."""
    types = draw.one("int8", "uint8"), "int8" if symmetric else draw.one("int8", "uint8")
    per_channel = draw.one((), (w[0],))
    w_zero = numpy.zeros(per_channel, types[1]) if symmetric else draw.values(per_channel, types[1], 0, 0)
    inputs = [_bytes(draw, x, types[0]), exact_scale(draw), _zero(draw, types[0]), _bytes(draw, w, types[1]), exact_scale(draw, per_channel), w_zero,
              power_of_two(draw) * 32, _zero(draw, types[0])]
    if bias and draw.maybe():
        inputs.append(draw.values((w[0],), "int32", -999, 999))
    return dataclasses.replace(draw.case(inputs, attributes), constant=set(range(1, len(inputs))))


@reaches("qlinear_conv_nhwc", op="QLinearConv")
def qlinear_conv_nhwc(draw):
    channels, kernel, stride = size(draw, 3, 64), draw.one(1, 1, 3), draw.int(1, 2)
    return _quantized_conv(draw, (draw.int(1, 2), channels, *_plane(draw, 5, 20)), (size(draw, 4, 64), channels, kernel, kernel), strides=[stride] * 2,
                           pads=[kernel // 2] * 4)


@reaches("qlinear_conv_depthwise", op="QLinearConv")
def qlinear_conv_depthwise(draw):
    channels, stride = size(draw, 8, 63), draw.int(1, 2)
    channels -= channels % 16 == 0  # those go by planes where the CPU has products of four bytes
    return _quantized_conv(draw, (draw.int(1, 2), channels, *_plane(draw, 5, 24)), (channels, 1, 3, 3), group=channels, strides=[stride] * 2, pads=[1] * 4)


@reaches("qlinear_conv_depthwise_planes", op="QLinearConv")
def qlinear_conv_planes(draw):
    channels, stride, kernel = 16 * draw.int(1, 5), draw.int(1, 2), draw.one(3, 5)
    return _quantized_conv(draw, (draw.int(1, 2), channels, *_plane(draw, 5, 24)), (channels, 1, kernel, kernel), symmetric=True, group=channels, strides=[stride] * 2,
                           pads=[kernel // 2] * 4)


@reaches("qlinear_conv_winograd", op="QLinearConv")
def qlinear_conv_winograd(draw):
    channels = size(draw, 16, 48)
    return _quantized_conv(draw, (draw.int(1, 2), channels, *_plane(draw, 14, 28)), (size(draw, 16, 48), channels, 3, 3), symmetric=True, pads=[1] * 4)


def _conv_integer(draw, x, w, **attributes):
    inputs = [_bytes(draw, x, "uint8", 0, 255), _bytes(draw, w, draw.one("int8", "uint8"), -128, 127), _zero(draw, "uint8")]
    return dataclasses.replace(draw.case(inputs, attributes), constant={1, 2})


@reaches("conv_integer_nhwc", op="ConvInteger")
def conv_integer_nhwc(draw):
    channels, kernel = size(draw, 3, 64), draw.one(1, 3)
    return _conv_integer(draw, (draw.int(1, 2), channels, *_plane(draw, 5, 20)), (size(draw, 4, 64), channels, kernel, kernel), pads=[kernel // 2] * 4)


@reaches("conv_integer_depthwise", op="ConvInteger")
def conv_integer_depthwise(draw):
    channels = size(draw, 8, 64)
    return _conv_integer(draw, (draw.int(1, 2), channels, *_plane(draw, 5, 20)), (channels, 1, 3, 3), group=channels, pads=[1] * 4)


def _dynamic_conv(draw, x, w, **attributes):
    """As quantizers of activations on the fly write it. The values are the least and largest of 256 steps of a power of two and others of
    them, so that nothing is rounded on the way."""
    step = numpy.float32(2.0 ** draw.int(-6, 0))
    values = draw.rng.integers(0, 256, x)
    values.flat[0], values.flat[-1] = 0, 255
    zero = draw.int(0, 255)
    image = ((values - zero) * step).astype("float32")
    weight, scale = _bytes(draw, w, "int8", -127, 127), exact_scale(draw, draw.one((), (1, w[0], 1, 1)))

    def nodes(prefix, inputs, outputs):
        names = [f"{prefix}{name}" for name in ("q", "s", "z", "i", "f", "p")]
        return [onnx.helper.make_node("DynamicQuantizeLinear", [inputs[0]], names[:3]),
                onnx.helper.make_node("ConvInteger", [names[0], inputs[1], names[2]], [names[3]], **attributes),
                onnx.helper.make_node("Cast", [names[3]], [names[4]], to=onnx.TensorProto.FLOAT),
                onnx.helper.make_node("Mul", [names[1], inputs[2]], [names[5]]),
                onnx.helper.make_node("Mul", [names[4], names[5]], outputs)]
    return dataclasses.replace(draw.graph([image, weight, scale], nodes, attributes), constant={1, 2}, open_dims=False)


@reaches("conv_integer_to_float_nhwc", op="ConvInteger")
def dynamic_conv_nhwc(draw):
    channels, kernel = size(draw, 3, 48), draw.one(1, 3)
    return _dynamic_conv(draw, (1, channels, *_plane(draw, 5, 20)), (size(draw, 4, 48), channels, kernel, kernel), pads=[kernel // 2] * 4)


@reaches("conv_integer_to_float_depthwise", op="ConvInteger")
def dynamic_conv_depthwise(draw):
    channels = size(draw, 8, 48)
    return _dynamic_conv(draw, (1, channels, *_plane(draw, 5, 20)), (channels, 1, 3, 3), group=channels, pads=[1] * 4)


@reaches("byte_table", op="Sigmoid")
def byte_table(draw):
    """Between QuantizeLinear and DequantizeLinear an activation is a table. Scales of few bits let no rounding decide."""
    dtype, op = draw.one("int8", "uint8"), draw.one("Relu", "LeakyRelu", "Clip", "Abs", "HardSigmoid")
    x = _bytes(draw, draw.shape(1, 4, high=40, zero=0), dtype, -128, 255)
    attributes = {"LeakyRelu": {"alpha": 0.25}, "HardSigmoid": {"alpha": 0.25, "beta": 0.5}}.get(op, {})

    def nodes(prefix, inputs, outputs):
        clip = [inputs[5], inputs[6]] if op == "Clip" else []
        return [onnx.helper.make_node("DequantizeLinear", inputs[:3], [f"{prefix}f"]),
                onnx.helper.make_node(op, [f"{prefix}f", *clip], [f"{prefix}g"], **attributes),
                onnx.helper.make_node("QuantizeLinear", [f"{prefix}g", inputs[3], inputs[4]], outputs)]
    inputs = [x, exact_scale(draw), _zero(draw, dtype), power_of_two(draw) / 32, _zero(draw, dtype), numpy.array(-1.5, "float32"), numpy.array(2.5, "float32")]
    return dataclasses.replace(draw.graph(inputs, nodes, {"function": op}), constant=set(range(1, 7)), open_dims=False)

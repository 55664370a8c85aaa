"""The operators of com.microsoft, one node at a time, with ONNX Runtime as the judge: shapes, attributes, element types, absent
inputs.

Each case runs as it is written and with all inputs but the first as initializers. Floats agree to 1e-5, relative to the largest;
whole numbers are equal, or one step apart where ONNX Runtime rounds a float32 whose exact value lies between two of them.
"""
import math

import evener
import ml_dtypes
import numpy
import onnx
import pytest
from common import onnx_runtime
from onnx import helper

f32, i8, u8, i32, i64 = numpy.float32, numpy.int8, numpy.uint8, numpy.int32, numpy.int64
CASES = {}


class Draw:
    """Arrays of a fixed seed."""

    def __init__(self, seed):
        self.random = numpy.random.default_rng(seed)

    def __call__(self, *shape, low=-2.0, high=2.0, dtype=f32):
        if numpy.issubdtype(dtype, numpy.integer):
            return self.random.integers(low, high, shape, dtype, endpoint=True)
        return self.random.uniform(low, high, shape).astype(dtype)

    def bytes(self, dtype, *shape):
        info = numpy.iinfo(dtype)
        return self.random.integers(info.min, info.max, shape, dtype, endpoint=True)

    def chosen(self, *shape):
        return self.random.integers(0, 1, shape, endpoint=True).astype(bool)


def case(name, op, inputs, attributes=None, outputs=1, domain="com.microsoft", opset=17, step=0, rtol=1e-5, wanted=None):
    """`inputs` are arrays in order, None for an absent one; `outputs` a number or names, "" for one that is not wanted; `step` is
    how far whole numbers may be apart; `wanted` what is expected of an operator that ONNX Runtime has no kernel for."""
    assert name not in CASES
    names = [f"y{index}" for index in range(outputs)] if isinstance(outputs, int) else outputs
    CASES[name] = (op, inputs, attributes or {}, names, domain, opset, step, rtol, wanted)


def model_of(op, inputs, attributes, outputs, domain, opset, constants=()):
    """One node; the inputs whose numbers are in `constants` are initializers."""
    # Absent inputs at the end are named too: ONNX Runtime dies of some that are not.
    names = [f"x{index}" if array is not None else "" for index, array in enumerate(inputs)]
    node = helper.make_node(op, names, outputs, "node", domain=domain, **attributes)
    given = [(index, array) for index, array in enumerate(inputs) if array is not None]
    variables = [
        helper.make_tensor_value_info(f"x{index}", helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for index, array in given
        if index not in constants
    ]
    initializers = [onnx.numpy_helper.from_array(array, f"x{index}") for index, array in given if index in constants]
    results = [onnx.ValueInfoProto(name=name) for name in outputs if name]
    for result in results:
        if result.name == "scores":  # whose type ONNX Runtime cannot tell
            result.CopyFrom(helper.make_tensor_value_info(result.name, onnx.TensorProto.FLOAT, None))
    graph = helper.make_graph([node], "graph", variables, results, initializers)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString()


def assert_like(actual, wanted, step, rtol):
    assert (actual.shape, actual.dtype) == (wanted.shape, wanted.dtype)
    if numpy.issubdtype(wanted.dtype, numpy.floating):
        scale = numpy.abs(wanted[numpy.isfinite(wanted)]).max(initial=0)
        numpy.testing.assert_allclose(actual, wanted, rtol, rtol * scale)
    else:
        assert numpy.abs(actual.astype(i64) - wanted.astype(i64)).max(initial=0) <= step


def feeds_of(inputs, constants):
    return {f"x{index}": array for index, array in enumerate(inputs) if array is not None and index not in constants}


@pytest.fixture(scope="module")
def runtime():
    return evener.Runtime(threads=1)


# ------------------------------------------------------------------------------------------- quantized, elementwise


def quantized(draw, dtype, *shape, scale=None, zero=None):
    """A tensor, its scale and its zero point."""
    numbers = draw.bytes(dtype, *shape)
    scale = draw.random.uniform(0.01, 0.05) if scale is None else scale
    return [numbers, numpy.array(scale, f32), numpy.array(draw.bytes(dtype) if zero is None else zero, dtype)]


def output_of(dtype, scale, zero):
    return [numpy.array(scale, f32), None if zero is None else numpy.array(zero, dtype)]


def elementwise_cases():
    draw = Draw(1)
    shapes = {"same": ((2, 3, 5), (2, 3, 5)), "row": ((2, 3, 5), (5,)), "column": ((4, 1), (3, 4, 7)), "scalar": ((), (3, 3))}
    for dtype, zero in ((u8, 117), (i8, -9)):
        for op in ("QLinearAdd", "QLinearMul"):
            for label, (a, b) in shapes.items():
                operands = quantized(draw, dtype, *a) + quantized(draw, dtype, *b)
                case(f"{op}-{dtype.__name__}-{label}", op, operands + output_of(dtype, 0.04, zero), step=1)
        for op, attributes in (("QLinearSigmoid", {}), ("QLinearLeakyRelu", {}), ("QLinearLeakyRelu", {"alpha": 0.3})):
            name = f"{op}-{dtype.__name__}{''.join(f'-{key}' for key in attributes)}"
            case(name, op, quantized(draw, dtype, 5, 60) + output_of(dtype, 1 / 200, zero), attributes, step=1)
            inputs = [*quantized(draw, dtype, 5, 60)[:2], None] + output_of(dtype, 0.01, None)
            case(f"{name}-no-zero-points", op, inputs, attributes, step=1)
        operands = [draw.chosen(4, 1)] + quantized(draw, dtype, 4, 5) + quantized(draw, dtype, 5)
        case(f"QLinearWhere-{dtype.__name__}", "QLinearWhere", operands + output_of(dtype, 0.03, zero), step=1)


# ---------------------------------------------------------------------------------------------------- quantized, rows


def row_cases():
    draw = Draw(2)
    for dtype, zero in ((u8, 117), (i8, -9)):
        parts = [quantized(draw, dtype, 2, n, 3) for n in (4, 1, 2)]
        for axis in (1, -2):
            inputs = sum(parts, output_of(dtype, 0.03, zero))
            case(f"QLinearConcat-{dtype.__name__}-axis{axis}", "QLinearConcat", inputs, {"axis": axis}, step=1)
        same = quantized(draw, dtype, 3, 2, scale=0.03, zero=zero)
        inputs = sum([same, same], output_of(dtype, 0.03, zero))
        case(f"QLinearConcat-{dtype.__name__}-same-scale", "QLinearConcat", inputs, {"axis": 0})
        last = {"channels_last": 1}
        for label, shape, attributes in (("4d", (2, 5, 3, 7), {}), ("3d", (1, 4, 9), {}), ("last", (2, 3, 7, 5), last)):
            inputs = quantized(draw, dtype, *shape) + output_of(dtype, 0.01, zero)
            case(f"QLinearGlobalAveragePool-{dtype.__name__}-{label}", "QLinearGlobalAveragePool", inputs, attributes, step=1)
        window = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}
        for label, shape, attributes in (("pads", (2, 5, 8, 7), window), ("all", (2, 5, 8, 7), window | {"count_include_pad": 1}),
                                         ("3d", (1, 4, 9), {"kernel_shape": [2]}), ("last", (2, 8, 7, 5), window | last)):
            inputs = quantized(draw, dtype, *shape) + output_of(dtype, 0.02, zero)
            case(f"QLinearAveragePool-{dtype.__name__}-{label}", "QLinearAveragePool", inputs, attributes, step=1)
        for label, attributes in (("last", {"opset": 13}), ("axis1", {"opset": 13, "axis": 1}), ("flat", {"opset": 11, "axis": 1})):
            inputs = quantized(draw, dtype, 2, 5, 9) + output_of(dtype, 1 / 256, 0 if dtype is u8 else -128)
            case(f"QLinearSoftmax-{dtype.__name__}-{label}", "QLinearSoftmax", inputs, attributes, step=1)


# ------------------------------------------------------------------------------------------------- quantized products


def product_cases():
    draw = Draw(3)
    for a, b in ((u8, u8), (u8, i8), (i8, i8)):
        kinds = f"{a.__name__}-{b.__name__}"
        for label, trans_a, trans_b, columns, c in (
            ("plain", 0, 0, False, None), ("transposed", 1, 1, False, (4,)),
            ("columns", 0, 0, True, (3, 4)), ("both", 0, 1, True, (1, 4))):
            left = quantized(draw, a, *((6, 3) if trans_a else (3, 6)))
            right = quantized(draw, b, *((4, 6) if trans_b else (6, 4)))
            if columns:
                right[1:] = [draw(4, low=0.01, high=0.03), draw(4, low=0, high=9, dtype=b)]
            added = None if c is None else draw(*c, low=-900, high=900, dtype=i32)
            attributes = {"transA": trans_a, "transB": trans_b, "alpha": 1.0 if label == "plain" else 0.7}
            case(f"QGemm-{kinds}-{label}", "QGemm", left + right + [added] + output_of(a, 0.2, 10), attributes, step=1)
            case(f"QGemm-{kinds}-{label}-float", "QGemm", left + right + [added], attributes)
        for label, shape, weight, columns, bias in (
            ("plain", (3, 6), (6, 4), False, False), ("batch", (2, 3, 6), (6, 4), True, True),
            ("both-batched", (2, 3, 6), (2, 6, 4), False, True)):
            left, right = quantized(draw, a, *shape), quantized(draw, b, *weight)
            if columns:
                right[1:] = [draw(4, low=0.01, high=0.03), draw(4, low=0, high=9, dtype=b)]
            inputs = [left[0], right[0], left[1], right[1], left[2], right[2], draw(4) if bias else None]
            case(f"MatMulIntegerToFloat-{kinds}-{label}", "MatMulIntegerToFloat", list(inputs))
            inputs[4:6] = [None, None]
            case(f"MatMulIntegerToFloat-{kinds}-{label}-no-zero-points", "MatMulIntegerToFloat", list(inputs))
            if a is u8:
                inputs = [draw(*shape), right[0], right[1], right[2], inputs[6]]
                case(f"DynamicQuantizeMatMul-{b.__name__}-{label}", "DynamicQuantizeMatMul", inputs)
                inputs = inputs[:3] + [None] + inputs[4:]
                case(f"DynamicQuantizeMatMul-{b.__name__}-{label}-no-zero-point", "DynamicQuantizeMatMul", inputs)
    for dtype in (f32, numpy.float64):
        for trans_a in (0, 1):
            for trans_b in (0, 1):
                left, right = (2, 5, 3) if trans_a else (2, 3, 5), (4, 5) if trans_b else (5, 4)
                attributes = {"transA": trans_a, "transB": trans_b, "alpha": 0.25}
                inputs = [draw(*left, dtype=dtype), draw(*right, dtype=dtype)]
                case(f"FusedMatMul-{dtype.__name__}-{trans_a}{trans_b}", "FusedMatMul", inputs, attributes)
    for label, left, right, attributes in (
        ("a", (3, 2, 5), (2, 5, 4), {"transBatchA": 1}), ("b", (2, 3, 5), (5, 2, 4), {"transBatchB": 1}),
        ("a-transposed", (5, 2, 3), (2, 5, 4), {"transBatchA": 1, "transA": 1}),
        ("both", (3, 2, 6, 5), (4, 2, 6, 5), {"transBatchA": 1, "transBatchB": 1, "transB": 1})):
        case(f"FusedMatMul-batch-{label}", "FusedMatMul", [draw(*left), draw(*right)], attributes)


# ------------------------------------------------------------------------------------------- fused layers of float32


def activation_cases():
    draw = Draw(4)
    case("Gelu", "Gelu", [draw(3, 7)])
    case("QuickGelu", "QuickGelu", [draw(3, 7)])
    case("QuickGelu-alpha", "QuickGelu", [draw(3, 7)], {"alpha": 0.8})
    case("FastGelu", "FastGelu", [draw(2, 3, 7)])
    case("FastGelu-bias", "FastGelu", [draw(2, 3, 7), draw(7)])
    case("BiasGelu", "BiasGelu", [draw(2, 3, 7), draw(7)])
    x, bias = draw(2, 3, 8), draw(8)
    left, right = numpy.split((x + bias).astype(numpy.float64), 2, axis=-1)
    gelu = right * 0.5 * (1 + numpy.vectorize(math.erf)(right / math.sqrt(2)))
    case("BiasSplitGelu", "BiasSplitGelu", [x, bias], wanted=[(left * gelu).astype(f32)])
    activations = [("Relu", []), ("Sigmoid", []), ("Tanh", []), ("LeakyRelu", [0.2]), ("HardSigmoid", [0.3, 0.4])]
    for activation, numbers in activations:
        attributes = {"activation": activation} | {f"activation_{key}": value for key, value in zip(("alpha", "beta"), numbers)}
        case(f"FusedGemm-{activation}", "FusedGemm", [draw(3, 5), draw(5, 4), draw(4)], attributes)
    attributes = {"activation": "Relu", "transA": 1, "transB": 1, "alpha": 0.5, "beta": 2.0}
    case("FusedGemm-transposed", "FusedGemm", [draw(5, 3), draw(4, 5), draw(3, 4)], attributes)
    case("FusedGemm-without-c", "FusedGemm", [draw(3, 5), draw(5, 4)], {"activation": "Relu"})
    for activation, numbers in [*activations, ("Clip", [-0.5, 0.75])]:
        attributes = {"activation": activation, "pads": [1, 1, 1, 1]} | ({"activation_params": numbers} if numbers else {})
        case(f"FusedConv-{activation}", "FusedConv", [draw(2, 3, 6, 5), draw(4, 3, 3, 3), draw(4)], attributes)
    inputs = [draw(1, 4, 6, 5), draw(4, 2, 3, 3), draw(4), draw(1, 4, 4, 3)]
    case("FusedConv-sum", "FusedConv", inputs, {"activation": "Relu", "group": 2})
    case("FusedConv-1d", "FusedConv", [draw(1, 4, 9), draw(6, 4, 3), None], {"activation": "Relu", "strides": [2]})
    x, w, bias = draw(2, 6, 5, 4), draw(6, 2, 3, 3), draw(6)
    attributes = {"pads": [1, 0, 1, 0], "strides": [2, 1], "group": 2}
    conv = model_of("Conv", [x.transpose(0, 3, 1, 2).copy(), w, bias], attributes, ["y"], "", 17)
    wanted = onnx_runtime(conv).run(None, feeds_of([x.transpose(0, 3, 1, 2).copy(), w, bias], ()))
    case("NhwcConv", "NhwcConv", [x, w, bias], attributes, wanted=[wanted[0].transpose(0, 2, 3, 1)])


def normalization_cases():
    draw = Draw(5)
    for label, skip in (("3d", (2, 3, 8)), ("one-batch", (1, 3, 8)), ("without-batch", (3, 8))):
        x, gamma, beta, bias = draw(2, 3, 8), draw(8), draw(8), draw(8)
        inputs = [x, draw(*skip), gamma, beta, bias]
        case(f"SkipLayerNormalization-{label}", "SkipLayerNormalization", inputs, {"epsilon": 1e-5}, ["y", "", "", "sum"])
        case(f"SkipLayerNormalization-{label}-without-beta", "SkipLayerNormalization", inputs[:3] + [None, bias])
        op = "SkipSimplifiedLayerNormalization"
        case(f"{op}-{label}", op, inputs[:3] + [bias], {}, ["y", "", "", "sum"])
        case(f"{op}-{label}-without-bias", op, inputs[:3], {"epsilon": 1e-3})
    for label, shape, attributes in (("last", (2, 3, 8), {}), ("axis", (2, 3, 4), {"axis": 1, "epsilon": 1e-3})):
        inputs = [draw(*shape), draw(*shape[attributes.get("axis", 2):])]
        case(f"SimplifiedLayerNormalization-{label}", "SimplifiedLayerNormalization", inputs, attributes, domain="")
    inputs = [draw(2, 3, 8), draw(8)]
    case("SimplifiedLayerNormalization-two-outputs", "SimplifiedLayerNormalization", inputs, outputs=2, domain="")
    ids, segments = draw(2, 5, low=0, high=10, dtype=i32), draw(2, 5, low=0, high=1, dtype=i32)
    word, position, segment, gamma, beta = draw(11, 8), draw(9, 8), draw(2, 8), draw(8), draw(8)
    mask = numpy.array([[1, 1, 1, 0, 0], [1, 1, 0, 1, 1]], i32)
    plain = [ids, segments, word, position, segment, gamma, beta]
    op = "EmbedLayerNormalization"
    case(f"{op}-plain", op, plain, outputs=2)
    case(f"{op}-mask", op, plain + [mask], {"epsilon": 1e-5}, 3)
    case(f"{op}-no-segments", op, [ids, None, word, position, None, gamma, beta, mask], outputs=2)
    case(f"{op}-positions", op, plain + [None, draw(2, 5, low=0, high=8, dtype=i32)], outputs=["y", "", "sum"])
    case(f"{op}-shared-positions", op, plain + [None, draw(1, 5, low=0, high=8, dtype=i32)], outputs=2)


def other_cases():
    draw = Draw(6)
    matrices = (draw(2, 5, 5) + 3 * numpy.eye(5)).astype(f32)
    case("Inverse", "Inverse", [matrices], rtol=1e-4)
    case("Inverse-matrix", "Inverse", [matrices[0].astype(numpy.float64)])
    for dtype in (f32, numpy.float64, i64):
        for upper in (0, 1):
            inputs = [draw(2, 4, 5, dtype=dtype, low=-9, high=9), numpy.array(upper - 2, i64)]
            case(f"Trilu-{dtype.__name__}-{upper}", "Trilu", inputs, {"upper": upper})
    case("Trilu-plain", "Trilu", [draw(3, 3)])
    case("Unique", "Unique", [numpy.array([2, 1, 1, 3, 4, 3], f32)], outputs=3)
    cosine, sine = draw(9, 4), draw(9, 4)
    positions = draw(2, 3, low=0, high=8, dtype=i64)
    for interleaved in (0, 1):
        for label, x, attributes in (
            ("flat", draw(2, 3, 24), {}), ("heads", draw(2, 3, 24), {"num_heads": 3}), ("4d", draw(2, 5, 3, 8), {}),
            ("part", draw(2, 3, 36), {"num_heads": 3, "rotary_embedding_dim": 8})):
            attributes = attributes | {"interleaved": interleaved}
            case(f"RotaryEmbedding-{label}-{interleaved}", "RotaryEmbedding", [x, positions, cosine, sine], attributes)
            begin = numpy.array([4], i64)
            packed = attributes | {"is_packed_batching": 1}
            case(f"RotaryEmbedding-{label}-{interleaved}-packed", "RotaryEmbedding", [x, positions, cosine, sine], packed)
            case(f"RotaryEmbedding-{label}-{interleaved}-begin", "RotaryEmbedding", [x, begin, cosine, sine], attributes)


def block_cases():
    draw = Draw(7)
    op = "MatMulNBits"
    for bits in (2, 4, 8):
        for block, k in ((16, 48), (32, 40)):
            n, blocks = 5, -(-k // block)
            attributes = {"K": k, "N": n, "bits": bits, "block_size": block}
            a, b, scales = draw(2, 3, k), draw.bytes(u8, n, blocks, block * bits // 8), draw(n, blocks, low=0.01, high=0.1)
            packed = draw.bytes(u8, n, -(-blocks * bits // 8))
            name = f"{op}-{bits}-{block}"
            case(name, op, [a, b, scales], attributes)
            case(f"{name}-zeros", op, [a, b, scales, packed], attributes)
            case(f"{name}-bias", op, [a, b, scales, packed, None, draw(n)], attributes)
            if bits == 4:
                case(f"{name}-float-zeros", op, [a, b, scales, draw(n, blocks, low=1, high=6)], attributes)
    op = "GatherBlockQuantized"
    indices = numpy.array([[3, 0, 5], [1, -2, 4]], i64)
    for bits in (2, 4, 8):
        data, scales = draw.bytes(u8, 6, 40 * bits // 8), draw(6, 3, low=0.01, high=0.1)
        attributes = {"bits": bits, "block_size": 16, "quantize_axis": 1}
        case(f"{op}-uint8-{bits}", op, [data, indices, scales], attributes)
        zeros = draw.bytes(u8, 6, -(-3 * bits // 8))
        case(f"{op}-uint8-{bits}-zeros", op, [data, indices.astype(i32), scales, zeros], attributes)
    for dtype in (ml_dtypes.int4, ml_dtypes.uint4):
        low = -8 if dtype is ml_dtypes.int4 else 0
        data = draw(6, 3, 40, low=low, high=low + 15, dtype=i32).astype(dtype)
        for label, gather, axis, scales in (("last", 0, 2, (6, 3, 3)), ("first", 1, 0, (1, 3, 40)), ("same", 2, 2, (6, 3, 3))):
            attributes = {"block_size": 16, "gather_axis": gather, "quantize_axis": axis}
            picked = indices % (6, 3, 40)[gather]
            inputs = [data, picked, draw(*scales, low=0.01, high=0.1)]
            case(f"{op}-{dtype.__name__}-{label}", op, inputs, attributes)
            zeros = draw(*scales, low=low, high=low + 15, dtype=i32).astype(dtype)
            case(f"{op}-{dtype.__name__}-{label}-zeros", op, inputs + [zeros], attributes)
    data, scales = draw(6, 32).astype(ml_dtypes.float8_e4m3fn), draw(6, 2, low=0.01, high=0.1)
    case(f"{op}-out-of-range", op, [draw.bytes(u8, 6, 20), indices + 2, draw(6, 3, low=0.01, high=0.1)], {"block_size": 16})
    case(f"{op}-float8", op, [data, indices, scales], {"block_size": 16})
    case(f"{op}-float8-whole-rows", op, [data, indices, scales[:, :1]], {"block_size": 0})


# ---------------------------------------------------------------------------------------------------------- attention


def masks_of(draw, batch, queries, keys):
    """By name: lengths, beginnings and ends, whole masks."""
    lengths = draw(batch, low=1, high=keys, dtype=i32)
    raw = draw(batch, keys, low=0, high=1, dtype=i32)
    raw[:, 0] = 1
    steps = draw(batch, queries, keys, low=0, high=1, dtype=i32)
    steps[:, :, 0] = 1
    ends = numpy.concatenate([numpy.full(batch, keys - 1, i32), draw(batch, low=0, high=1, dtype=i32)])
    return {"lengths": lengths, "ends": ends, "raw": raw, "steps": steps}


def attention_cases():
    draw = Draw(8)
    op, batch, steps, heads, depth = "Attention", 2, 4, 3, 8
    x, weight, bias = draw(batch, steps, 10), draw(10, 3 * heads * depth, low=-0.5, high=0.5), draw(3 * heads * depth)
    attributes = {"num_heads": heads}
    past = draw(2, batch, heads, 3, depth)
    # All keys masked: float32 keeps 3 digits of scores beside -10000.
    nothing = numpy.zeros((batch, steps), i32)
    case(f"{op}-all-masked", op, [x, weight, bias, nothing], attributes, rtol=1e-3)
    case(f"{op}-all-masked-causal", op, [x, weight, bias, nothing], attributes | {"unidirectional": 1}, rtol=1e-3)
    case(f"{op}-plain", op, [x, weight, bias], attributes)
    case(f"{op}-scale", op, [x, weight, bias], attributes | {"scale": 0.3})  # ONNX Runtime dies without a bias
    for name, mask in masks_of(draw, batch, steps, steps).items():
        for causal in (0, 1):
            case(f"{op}-{name}-{causal}", op, [x, weight, bias, mask], attributes | {"unidirectional": causal})
    mask = masks_of(draw, batch, steps, steps)["raw"]
    case(f"{op}-filter", op, [x, weight, bias, mask], attributes | {"mask_filter_value": -2.0})
    for name, mask in (masks_of(draw, batch, steps, steps + 3) | {"nothing": None}).items():
        case(f"{op}-past-{name}", op, [x, weight, bias, mask, past], attributes | {"unidirectional": 1}, 2)
    shapes = {"whole": (batch, heads, steps, steps), "shared": (1, 1, steps, steps), "heads": (1, heads, steps, steps)}
    for label, shape in shapes.items():
        case(f"{op}-bias-{label}", op, [x, weight, bias, None, None, draw(*shape)], attributes)
    sizes = {"qkv_hidden_sizes": [24, 24, 12]}
    case(f"{op}-sizes", op, [x, draw(10, 60, low=-0.5, high=0.5), draw(60)], attributes | sizes)
    for dtype in (u8, i8):
        for columns in (False, True):
            left, right = quantized(draw, u8, batch, steps, 10), quantized(draw, dtype, 10, 72, scale=0.02)
            if columns:
                right[1:] = [draw(72, low=0.01, high=0.03), numpy.zeros(72, dtype)]
            inputs = [left[0], right[0], bias, left[1], right[1], None, left[2], right[2]]
            name = f"QAttention-{dtype.__name__}{'-columns' if columns else ''}"
            case(name, "QAttention", inputs, attributes, rtol=1e-4)
            case(f"{name}-mask", "QAttention", inputs[:5] + [numpy.array([3, 4], i32)] + inputs[6:], attributes, rtol=1e-4)
    inputs = inputs[:5] + [None] + inputs[6:] + [past]
    case("QAttention-past", "QAttention", inputs, attributes | {"unidirectional": 1}, 2, rtol=1e-4)


def multi_head_cases():
    draw = Draw(9)
    op, batch, steps, keys, heads, depth = "MultiHeadAttention", 2, 4, 5, 3, 8
    hidden = heads * depth
    q, k, v = draw(batch, steps, hidden), draw(batch, keys, hidden), draw(batch, keys, hidden)
    wide, bias = draw(batch, keys, heads * 4), draw(3 * hidden)
    attributes = {"num_heads": heads}
    case(f"{op}-plain", op, [q, k, v], attributes)
    case(f"{op}-scale", op, [q, k, v, bias], attributes | {"scale": 0.2})
    case(f"{op}-narrow-values", op, [q, k, wide, draw(2 * hidden + heads * 4)], attributes)
    case(f"{op}-causal", op, [q, q, q], attributes | {"unidirectional": 1})
    masks = masks_of(draw, batch, steps, keys)
    for name in ("lengths", "raw", "steps"):
        case(f"{op}-{name}", op, [q, k, v, bias, masks[name]], attributes)
    case(f"{op}-attention-bias", op, [q, k, v, bias, None, draw(1, heads, steps, keys)], attributes)
    by_head = [draw(batch, heads, keys, depth), draw(batch, heads, keys, depth)]
    case(f"{op}-by-head", op, [q, *by_head], attributes)
    past = [draw(batch, heads, 2, depth), draw(batch, heads, 2, depth)]
    case(f"{op}-past", op, [q, q, q, bias, None, None, *past], attributes | {"unidirectional": 1}, 3)
    case(f"{op}-past-mask", op, [q, k, v, None, draw(batch, keys + 2, low=0, high=1, dtype=i32), None, *past], attributes, 3)
    case(f"{op}-present", op, [q, k, v], attributes, 3)
    case(f"{op}-scores", op, [q, k, v, None, masks["raw"]], attributes, ["y", "k", "v", "scores"])
    case(f"{op}-lengths-of-packed", op, [q, k, v, None, numpy.array([2, 4] + [0] * 6, i32)], attributes)
    buffers = [draw(4, heads, 9, depth) for _ in range(2)]
    for steps in (1, 3):
        new = [draw(4, steps, heads * depth) for _ in range(3)]
        case(f"{op}-shared-buffer-{steps}", op, [*new, None, None, None, *buffers, numpy.array([5], i32)], attributes, 3)
    beams = draw(2, 2, 9, low=0, high=1, dtype=i32)
    one = [draw(4, 1, heads * depth) for _ in range(3)]
    case(f"{op}-beams", op, [*one, None, None, None, *buffers, numpy.array([5], i32), beams], attributes, 3)


def group_query_cases():
    draw = Draw(10)
    op, heads, groups, depth = "GroupQueryAttention", 4, 2, 16
    cosine, sine = draw(16, depth // 2), draw(16, depth // 2)
    attributes = {"num_heads": heads, "kv_num_heads": groups}

    def inputs_of(batch, steps, past, total, capacity=None, packed=False):
        query = draw(batch, steps, (heads + 2 * groups if packed else heads) * depth)
        key, value = (None, None) if packed else (draw(batch, steps, groups * depth), draw(batch, steps, groups * depth))
        cache = [None, None] if past is None else [draw(batch, groups, capacity or past, depth) for _ in range(2)]
        lengths = numpy.full(batch, total - 1, i32)
        return [query, key, value, *cache, lengths, numpy.array(total, i32)]

    def add(label, inputs, more=None, outputs=3):
        case(f"{op}-{label}", op, inputs, attributes | (more or {}), outputs)

    for packed in (False, True):
        kind = "packed" if packed else "plain"
        add(f"{kind}-prompt", inputs_of(2, 5, None, 5, packed=packed))
        add(f"{kind}-step", inputs_of(2, 1, 6, 7, packed=packed))
        for interleaved in (0, 1):
            rotary = {"do_rotary": 1, "rotary_interleaved": interleaved}
            add(f"{kind}-rotary-prompt-{interleaved}", inputs_of(2, 5, None, 5, packed=packed) + [cosine, sine], rotary)
            add(f"{kind}-rotary-step-{interleaved}", inputs_of(2, 1, 6, 7, packed=packed) + [cosine, sine], rotary)
    add("capacity", inputs_of(2, 1, 6, 7, capacity=12) + [cosine, sine], {"do_rotary": 1})
    ragged = inputs_of(2, 1, 6, 7, capacity=12)
    ragged[5] = numpy.array([3, 6], i32)
    add("ragged", ragged)
    add("several-steps", inputs_of(1, 3, 4, 7))
    add("window", inputs_of(2, 1, 6, 7), {"local_window_size": 3})
    add("window-prompt", inputs_of(2, 6, None, 6), {"local_window_size": 2})
    add("softcap", inputs_of(2, 5, None, 5), {"softcap": 1.5, "scale": 0.7})
    add("smooth", inputs_of(2, 5, None, 5), {"smooth_softmax": 1})
    add("sink", inputs_of(2, 1, 6, 7) + [None, None, None, None, draw(heads)])
    add("attention-bias", inputs_of(2, 5, None, 5) + [None, None, None, draw(1, heads, 5, 5)])
    add("attention-bias-softcap", inputs_of(2, 1, 6, 7) + [None, None, None, draw(2, 1, 1, 7)], {"softcap": 2.0})
    positions = numpy.array([[4], [9]], i64)
    add("positions", inputs_of(2, 1, 6, 7) + [cosine, sine, positions], {"do_rotary": 1})
    for kind in (1, 2):
        add(f"scores-{kind}", inputs_of(2, 1, 6, 7), {"qk_output": kind}, 4)
    add("all-keys", inputs_of(2, 5, None, 5), {"causal": 0})
    prompt = numpy.array([[3, 9, 1, 0, 2], [5, 6, 7, 8, 9]], i64)  # of which the first counts
    add("positions-prompt", inputs_of(2, 5, None, 5) + [cosine, sine, prompt], {"do_rotary": 1})
    for label, bits, dtype in (("int8", 8, i8), ("int4", 4, u8)):
        for kind, scale in (("PER_TENSOR", draw(1, low=0.01, high=0.02)), ("PER_CHANNEL", draw(1, groups, 1, depth, low=0.01, high=0.02))):
            scales = [scale * (1 if bits == 8 else 16)] * 2
            more = {"k_quant_type": kind, "v_quant_type": kind, "kv_cache_bit_width": bits, "do_rotary": 1}
            for place, steps, past, capacity in (("prompt", 5, 0, None), ("step", 1, 6, None), ("capacity", 1, 6, 12), ("steps", 3, 4, None)):
                inputs = inputs_of(1, steps, past, past + steps, capacity)
                inputs[3:5] = [draw.bytes(dtype, 1, groups, capacity or past, depth * bits // 8) for _ in range(2)]
                add(f"{label}-{kind}-{place}", inputs + [cosine, sine, None, None, None, *scales], more)


# --------------------------------------------------------------------------------------------------------------- LSTM


def lstm_cases():
    draw = Draw(11)
    op, steps, batch, width, hidden = "DynamicQuantizeLSTM", 5, 2, 6, 8
    for dtype in (u8, i8):
        for direction in ("forward", "reverse", "bidirectional"):
            count = 2 if direction == "bidirectional" else 1
            weight = [draw.bytes(dtype, count, size, 4 * hidden) for size in (width, hidden)]
            scale = [draw(count, low=0.002, high=0.004), draw(count, low=0.002, high=0.004)]
            zero = [draw(count, low=100, high=120, dtype=u8) if dtype is u8 else numpy.zeros(count, dtype) for _ in range(2)]
            x, bias, peephole = draw(steps, batch, width), draw(count, 8 * hidden), draw(count, 3 * hidden)
            states = [draw(count, batch, hidden, low=-1, high=1) for _ in range(2)]
            attributes = {"hidden_size": hidden, "direction": direction}
            tail = [scale[0], zero[0], scale[1], zero[1]]
            name = f"{op}-{dtype.__name__}-{direction}"
            # An h beside ours by the 7th digit may be quantized one step apart, 1 in 255.
            inputs = [x, *weight, None, None, None, None, None, *tail]
            case(f"{name}-plain", op, inputs, attributes, 3, rtol=5e-3)
            inputs = [x, *weight, bias, numpy.array([5, 3], i32), *states, peephole, *tail]
            case(f"{name}-all", op, inputs, attributes, 3, rtol=5e-3)
            if dtype is i8:
                rows = [draw(count, 4 * hidden, low=0.002, high=0.004), numpy.zeros((count, 4 * hidden), dtype)]
                case(f"{name}-rows", op, [x, *weight, bias, None, None, None, None, *rows, *rows], attributes, 3, rtol=5e-3)


for make in (elementwise_cases, row_cases, product_cases, activation_cases, normalization_cases, other_cases, block_cases,
             attention_cases, multi_head_cases, group_query_cases, lstm_cases):
    make()


@pytest.mark.parametrize("constant", (False, True), ids=("variables", "constants"))
@pytest.mark.parametrize("name", CASES)
def test_an_operator_agrees_with_onnx_runtime(runtime, name, constant):
    op, inputs, attributes, outputs, domain, opset, step, rtol, wanted = CASES[name]
    # ONNX Runtime takes the types of less than 16 bits that NumPy lacks as initializers only.
    given = [(index, array) for index, array in enumerate(inputs) if array is not None]
    constants = [index for index, array in given if index > 0 and constant or array.dtype.kind == "V"]
    model = model_of(op, inputs, attributes, outputs, domain, opset, constants)
    feeds = feeds_of(inputs, constants)
    expected = wanted if wanted is not None else onnx_runtime(model).run(None, feeds)
    actual = list(runtime.session(model).run(feeds).values())
    assert len(actual) == len(expected)
    for ours, theirs in zip(actual, expected):
        assert_like(ours, theirs, step, rtol)


def sliding(window, capacity, count):
    """The first position that a cache of `capacity` rows has of `count`."""
    return 0 if count <= capacity else (capacity - window + 1) * -(-(count - capacity) // (capacity - window + 1))


@pytest.mark.parametrize("window, capacity", ((3, 3), (3, 5), (1, 4)))
@pytest.mark.parametrize("steps", (1, 2, 7))
def test_a_sliding_cache_has_the_rows_of_the_window(runtime, window, capacity, steps):
    """Step by step through 21 positions; rows that count for nothing may be anything."""
    draw, heads, groups, depth = Draw(100 * window + 10 * capacity + steps), 4, 2, 16
    tables = [draw(30, depth // 2), draw(30, depth // 2)]
    attributes = {"num_heads": heads, "kv_num_heads": groups, "local_window_size": window, "sliding_window_cache": 1, "do_rotary": 1}
    caches = [numpy.zeros((1, groups, capacity, depth), f32)] * 2
    for total in range(steps, 22, steps):
        sizes = numpy.array([total - 1], i32), numpy.array(total, i32)
        new = [draw(1, steps, heads * depth), draw(1, steps, groups * depth), draw(1, steps, groups * depth)]
        inputs = [*new, *caches, *sizes, *tables, None, draw(1, heads, steps, total)]
        model = model_of("GroupQueryAttention", inputs, attributes, ["y", "k", "v"], "com.microsoft", 17)
        wanted = onnx_runtime(model).run(None, feeds_of(inputs, ()))
        y, *caches = runtime.session(model).run(feeds_of(inputs, ())).values()
        assert_like(y, wanted[0], 0, 1e-5)
        count = total - sliding(window, capacity, total)
        for ours, theirs in zip(caches, wanted[1:]):
            assert ours.shape == theirs.shape
            assert_like(ours[:, :, :count], theirs[:, :, :count], 0, 1e-5)


HALF_CASES = ("QAttention-past", "QAttention-int8-columns", "MatMulIntegerToFloat-uint8-int8-plain", "EmbedLayerNormalization-mask",
              "Attention-plain", "Attention-past-raw", "MultiHeadAttention-scores", "GroupQueryAttention-plain-step",
              "GroupQueryAttention-int8-PER_TENSOR-step", "SkipLayerNormalization-3d", "FusedMatMul-float32-01", "FastGelu-bias")


@pytest.mark.parametrize("dtype", (numpy.float16, ml_dtypes.bfloat16), ids=("float16", "bfloat16"))
@pytest.mark.parametrize("name", HALF_CASES)
def test_half_precision_is_what_float32_gives_rounded(runtime, name, dtype):
    op, inputs, attributes, outputs, domain, opset, *_ = CASES[name]
    scales = (12, 13) if op == "GroupQueryAttention" else ()  # which stay float32
    narrow = [x.astype(dtype) if x is not None and x.dtype == f32 and i not in scales else x for i, x in enumerate(inputs)]
    wide = [x.astype(f32) if x is not None and x.dtype == dtype else x for x in narrow]
    model = model_of(op, wide, attributes, outputs, domain, opset)
    wanted = onnx_runtime(model).run(None, feeds_of(wide, ()))
    model = model_of(op, narrow, attributes, [f"half_{name}" if name else "" for name in outputs], domain, opset)
    actual = list(runtime.session(model).run(feeds_of(narrow, ())).values())
    for ours, theirs in zip(actual, wanted, strict=True):
        assert ours.dtype == (dtype if theirs.dtype == f32 else theirs.dtype)
        assert_like(ours.astype(theirs.dtype), theirs, 1, 2e-2 if dtype == ml_dtypes.bfloat16 else 2e-3)


def refused(runtime, op, inputs, attributes, outputs=1):
    names = [f"y{index}" for index in range(outputs)]
    with pytest.raises(evener.Error) as info:
        runtime.session(model_of(op, inputs, attributes, names, "com.microsoft", 17)).run(feeds_of(inputs, ()))
    return str(info.value)


def test_what_the_attentions_leave_out_is_refused_by_name(runtime):
    draw, sizes = Draw(12), [numpy.array([6], i32), numpy.array(7, i32)]
    new, cache = [draw(1, 1, 64), draw(1, 1, 32), draw(1, 1, 32)], draw(1, 2, 6, 16)
    op, plain = "GroupQueryAttention", {"num_heads": 4, "kv_num_heads": 2}
    norms = [*new, cache, cache, *sizes, *[None] * 7, draw(16), draw(16)]
    assert "normalized queries and keys" in refused(runtime, op, norms, plain)
    eighths = [*new, *[cache.astype(ml_dtypes.float8_e4m3fn)] * 2, *sizes, *[None] * 5, draw(1), draw(1)]
    types = {"k_quant_type": "PER_TENSOR", "v_quant_type": "PER_TENSOR", "kv_cache_bit_width": 8}
    assert "float8e4m3fn" in refused(runtime, op, eighths, plain | types)
    assert "kv_cache_bit_width is 3" in refused(runtime, op, eighths, plain | types | {"kv_cache_bit_width": 3})
    assert "the other is not" in refused(runtime, op, eighths, plain | {"k_quant_type": "PER_TENSOR"})
    bytes8 = [*new, *[draw.bytes(i8, 1, 2, 6, 16)] * 2, *sizes]
    assert "input 12" in refused(runtime, op, bytes8, plain | types)
    assert '"PER_ROW"' in refused(runtime, op, [*bytes8, *[None] * 5, draw(1), draw(1)], plain | types | {"k_quant_type": "PER_ROW"})
    assert "input 12" in refused(runtime, op, [*bytes8, *[None] * 5, draw(16), draw(1)], plain | types | {"k_quant_type": "PER_CHANNEL"})
    slide = plain | {"sliding_window_cache": 1}
    assert "needs local_window_size" in refused(runtime, op, [*new, cache, cache, *sizes], slide)
    assert "fewer rows" in refused(runtime, op, [*new, cache, cache, *sizes], slide | {"local_window_size": 8})
    assert "needs past_key" in refused(runtime, op, [*new, None, None, *sizes], slide | {"local_window_size": 2})
    assert "scores of a sliding cache" in refused(runtime, op, [*new, cache, cache, *sizes], slide | {"local_window_size": 2}, 4)
    assert "needs causal 1" in refused(runtime, op, [*new, cache, cache, *sizes], plain | {"local_window_size": 2, "causal": 0})
    long = [*new, draw(1, 2, 12, 16), draw(1, 2, 12, 16), numpy.array([9], i32), sizes[1]]  # more keys than the bias has
    assert "seqlens_k" in refused(runtime, op, [*long, None, None, None, draw(1, 4, 1, 7)], plain)
    turned = [draw(1, 3, 32), numpy.zeros((1, 3), i64), draw(5, 16), draw(5, 16)]
    assert "a scale of angles" in refused(runtime, "RotaryEmbedding", turned, {"scale": 2.0})
    x, weight, bias = draw(1, 3, 16), draw(16, 48), draw(48)
    for more, mask, reason in (({"do_rotary": 1}, None, "rotary embedding"), ({"past_present_share_buffer": 1}, None, "in one buffer"),
                               ({}, numpy.ones((1, 1, 3, 3), i32), "of rank 4")):
        assert reason in refused(runtime, "Attention", [x, weight, bias, mask], {"num_heads": 2} | more)
    op, four = "MultiHeadAttention", {"num_heads": 4}
    new, cache = [draw(2, 1, 64) for _ in range(3)], draw(2, 4, 6, 16)
    for count in (-1, 6, 7):
        shared = [*new, None, None, None, cache, cache, numpy.array([count], i32)]
        assert "fit the" in refused(runtime, op, shared, four)
    beams = numpy.full((1, 2, 6), 2, i32)
    shared = [*new, None, None, None, cache, cache, numpy.array([3], i32), beams]
    assert "names beam 2" in refused(runtime, op, shared, four)
    assert "cache_indirection without" in refused(runtime, op, [*shared[:8], None, beams], four)
    assert "without a past" in refused(runtime, op, [*new, *[None] * 5, shared[8]], four)

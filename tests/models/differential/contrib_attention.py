"""The attentions of com.microsoft (MultiHeadAttention unpacked: ONNX Runtime's CPU has no more) with their masks and caches, and what stands around them; ONNX Runtime is the only judge."""
import numpy
import onnx

from .contrib import MICROSOFT
from .draw import in_half_too, operator
from .products import exact_scale, power_of_two


def _mask(draw, batch, queries, keys, ends=False):
    """Of any rank that ONNX Runtime takes; a first key is always seen."""
    kind = draw.one("lengths", "packed", "raw", "steps", *(["ends"] if ends else []))
    lengths = draw.values((batch,), "int32", 1, keys)
    if kind == "lengths":
        return lengths
    if kind == "packed":
        return numpy.concatenate([lengths, numpy.zeros(2 * batch + 2, "int32")])
    if kind == "ends":
        return numpy.concatenate([lengths, numpy.zeros(batch, "int32") if keys == 1 else numpy.minimum(lengths - 1, draw.values((batch,), "int32", 0, 2))])
    mask = draw.values((batch, keys) if kind == "raw" else (batch, queries, keys), "int32", 0, 1)
    mask[..., 0] = 1
    return mask


def _bias(draw, batch, heads, queries, keys):
    return draw.values((draw.one(1, batch), draw.one(1, heads), queries, keys))


@operator("Attention", domain=MICROSOFT)
@in_half_too
def attention(draw):
    batch, steps, heads, depth, width = draw.int(1, 2), draw.int(1, 4), draw.int(1, 3), draw.one(4, 8), draw.int(1, 6)
    hidden, attributes, past, narrow = heads * depth, {"num_heads": heads}, None, 0
    if draw.maybe(0.3):
        past = draw.values((2, batch, heads, draw.int(1, 3), depth))
    elif draw.maybe(0.3):
        narrow = heads * draw.int(1, 4)
        attributes["qkv_hidden_sizes"] = [hidden, hidden, narrow]
    columns, keys = 2 * hidden + (narrow or hidden), steps + (0 if past is None else past.shape[3])
    attributes.update(draw.some(unidirectional=draw.int(0, 1), scale=draw.real(0.1, 1)))
    mask = _mask(draw, batch, steps, keys, True) if draw.maybe() else None
    if mask is not None:
        attributes.update(draw.some(mask_filter_value=-50.0))
    bias = _bias(draw, batch, heads, steps, keys) if past is None and draw.maybe(0.3) else None
    inputs = [draw.values((batch, steps, width)), draw.values((width, columns), low=-1, high=1), draw.values((columns,)), mask, past, bias, None]
    return draw.case(inputs, attributes, 1 if past is None else 2, tolerance=(1e-3, 1e-4))


@operator("QAttention", domain=MICROSOFT)
def quantized_attention(draw):
    batch, steps, heads, depth, width = draw.int(1, 2), draw.int(1, 4), draw.int(1, 3), draw.one(4, 8), draw.int(1, 6)
    columns, dtype, past = 3 * heads * depth, draw.one("uint8", "int8"), None
    scales = (columns,) if draw.maybe(0.3) else ()
    if draw.maybe(0.3):
        past = draw.values((2, batch, heads, draw.int(1, 3), depth))
    keys = steps + (0 if past is None else past.shape[3])
    mask = _mask(draw, batch, steps, keys, True) if draw.maybe() else None
    inputs = [draw.values((batch, steps, width), "uint8", 0, 255), draw.values((width, columns), dtype, -20, 20), draw.values((columns,)),
              numpy.array(1 / 128, "float32"), draw.values(scales, low=0.01, high=0.03), mask, draw.values((), "uint8", 100, 150),
              draw.values(scales, dtype, 0, 3), past]
    case = draw.case(inputs, {"num_heads": heads, **draw.some(unidirectional=draw.int(0, 1))}, 1 if past is None else 2, tolerance=(1e-3, 1e-4))
    return case


@operator("MultiHeadAttention", domain=MICROSOFT)
@in_half_too
def multi_head_attention(draw):
    batch, queries, keys, heads, depth = draw.int(1, 3), draw.int(1, 4), draw.int(1, 5), draw.int(1, 3), draw.one(4, 8)
    hidden, attributes, inputs, outputs = heads * depth, {"num_heads": heads, **draw.some(scale=draw.real(0.1, 1))}, [None] * 10, 1
    packing, v_width, inputs[0] = draw.one("none", "none", "none", "by_head"), depth, draw.values((batch, queries, hidden))
    if packing == "by_head":
        inputs[1:3] = [draw.values((batch, heads, keys, depth)) for _ in range(2)]
    else:
        has_past = draw.maybe()
        v_width = depth if has_past else draw.one(depth, draw.int(1, 6))
        inputs[1], inputs[2] = draw.values((batch, keys, hidden)), draw.values((batch, keys, heads * v_width))
    if packing == "none" and draw.maybe():
        inputs[3] = draw.values((2 * hidden + heads * v_width,))
    total = keys
    if packing == "none" and has_past:
        past, shared = draw.int(1, 4), draw.maybe()
        total, capacity, outputs = keys + past, past + (keys + draw.int(0, 3) if shared else 0), 3
        if shared and draw.maybe(0.3):
            queries = keys = 1
            total, batch = past + 1, 4
            inputs[:4] = [draw.values((4, 1, hidden)), draw.values((4, 1, hidden)), draw.values((4, 1, heads * v_width)), None]
            inputs[9] = draw.values((2, 2, capacity), "int32", 0, 1)
        inputs[6:8] = [draw.values((batch, heads, capacity, size)) for size in (depth, v_width)]
        inputs[8] = draw.values((1,), "int32", past, past) if shared else None
    if draw.maybe(0.4) and packing != "by_head":
        inputs[4] = _mask(draw, batch, queries, total)
    if draw.maybe(0.3):
        inputs[5] = _bias(draw, batch, heads, queries, total)
    if queries == keys and draw.maybe(0.3):
        attributes["unidirectional"] = 1
    return draw.case(inputs, attributes, outputs)


def _cache(draw, attributes, inputs, batch, groups, capacity, depth):
    """Past keys and values in float32 or quantized, with their scales."""
    if draw.maybe(0.6):
        inputs[3:5] = [draw.values((batch, groups, capacity, depth)) for _ in range(2)]
        return
    bits, kinds = draw.one(4, 8), [draw.one("PER_TENSOR", "PER_CHANNEL")] * 2  # ONNX Runtime wants them alike
    attributes.update(k_quant_type=kinds[0], v_quant_type=kinds[1], kv_cache_bit_width=bits)
    for i, kind in enumerate(kinds):
        dtype, low, high = ("int8", -128, 127) if bits == 8 else ("uint8", 0, 255)
        inputs[3 + i] = draw.values((batch, groups, capacity, depth * bits // 8), dtype, low, high)
        inputs[12 + i] = exact_scale(draw, (1,) if kind == "PER_TENSOR" else (1, groups, 1, depth)) * numpy.float32(1 if bits == 8 else 16)


def _newest(prefix, names, outputs, attributes, rows):
    """A sliding cache, of which only the first rows say something."""
    caches = [f"{prefix}k", f"{prefix}v"]
    nodes = [onnx.helper.make_node("GroupQueryAttention", names, [outputs[0], *caches], domain=MICROSOFT, **attributes)]
    for value in (0, rows, 2):
        nodes.append(onnx.helper.make_node("Constant", [], [f"{prefix}{value}i{len(nodes)}"], value_ints=[value]))
    ends = [node.output[0] for node in nodes[1:]]
    return nodes + [onnx.helper.make_node("Slice", [cache, *ends], [output]) for cache, output in zip(caches, outputs[1:])]


@operator("GroupQueryAttention", domain=MICROSOFT)
@in_half_too
def group_query_attention(draw):
    groups, depth, steps, past = draw.int(1, 2), draw.one(16, 32), draw.int(1, 5), draw.int(0, 6)
    heads, rotary, packed = groups * draw.int(1, 3), draw.maybe(), draw.maybe(0.3)
    batch = draw.int(1, 2) if past == 0 or steps == 1 else 1
    total, sliding, inputs = past + steps, draw.maybe(0.2), [None] * 14
    window = draw.int(1, 5)
    capacity = window + draw.int(0, 3) if sliding else past + draw.one(0, steps, steps + draw.int(0, 3))
    attributes = {"num_heads": heads, "kv_num_heads": groups, "rotary_interleaved": draw.int(0, 1), "do_rotary": int(rotary),
                  **draw.some(scale=draw.real(0.1, 1), softcap=draw.real(0.5, 3))}
    inputs[0] = draw.values((batch, steps, (heads + 2 * groups if packed else heads) * depth))
    if not packed:
        inputs[1:3] = [draw.values((batch, steps, groups * depth)) for _ in range(2)]
    if capacity > 0 and (past > 0 or sliding or draw.maybe()):
        _cache(draw, attributes, inputs, batch, groups, capacity, depth)
    lengths = numpy.full(batch, total - 1, "int32")
    if past > 0 and batch > 1 and not sliding:
        lengths[draw.int(0, 1)] = draw.int(steps - 1, total - 1)
    inputs[5], inputs[6] = lengths, numpy.array(total, "int32")
    if rotary:
        inputs[7:9] = [draw.values((total + 9, depth // 2), low=-1, high=1) for _ in range(2)]
        inputs[9] = draw.rng.integers(0, 9, (batch, steps)).astype("int64") if draw.maybe(0.3) else None
    if draw.maybe(0.3):
        inputs[10] = _bias(draw, batch, heads, steps, total)
    if draw.maybe(0.2):
        inputs[11] = draw.values((heads,))
    elif draw.maybe(0.2):
        attributes["smooth_softmax"] = 1
    if sliding:
        attributes.update(local_window_size=window, sliding_window_cache=1)
        gone = capacity - window + 1
        rows = total if total <= capacity else total - gone * -(-(total - capacity) // gone)
        return draw.graph(inputs, lambda prefix, names, outputs: _newest(prefix, names, outputs, attributes, rows), attributes, 3)
    if draw.maybe(0.3):
        attributes["local_window_size"] = window
    elif draw.maybe(0.2):
        attributes["causal"] = 0
    outputs = 3
    if draw.maybe(0.2):
        attributes["qk_output"], outputs = draw.one(1, 2), 4
    return draw.case(inputs, attributes, outputs)


@operator("EmbedLayerNormalization", domain=MICROSOFT)
@in_half_too
def embed_layer_norm(draw):
    batch, steps, hidden, words, places = draw.int(1, 3), draw.int(1, 4), draw.int(2, 8), draw.int(1, 9), draw.int(4, 9)
    segments = draw.int(1, 3) if draw.maybe() else 0
    inputs = [draw.values((batch, steps), "int32", 0, words - 1), draw.values((batch, steps), "int32", 0, segments - 1) if segments else None,
              draw.spread((words, hidden), "float32"), draw.values((places, hidden)), draw.values((segments, hidden)) if segments else None,
              draw.values((hidden,)), draw.values((hidden,)), draw.values((batch, steps), "int32", 0, 1) if draw.maybe() else None,
              draw.values((draw.one(1, batch), steps), "int32", 0, places - 1) if draw.maybe() else None]
    case = draw.case(inputs, draw.some(epsilon=1e-3), draw.int(2, 3), tolerance=(1e-3, 1e-4))
    case.open_dims = False  # which ONNX Runtime wants to know
    return case


@operator("GatherBlockQuantized", domain=MICROSOFT)
@in_half_too
def gather_blocks(draw):
    rows, columns, block, dtype = draw.int(1, 5), draw.int(1, 3) * 16, draw.one(16, 32), draw.one("uint8", "int4", "uint4")
    blocks, attributes = -(-columns // block), {"block_size": block, "quantize_axis": 1}
    indices = draw.indices(draw.shape(0, 2, zero=0), rows, draw.one("int32", "int64"), False)
    scales = draw.values((rows, blocks), low=0.01, high=0.1)
    if dtype == "uint8":
        bits = draw.one(4, 8)
        data, zeros = draw.values((rows, columns * bits // 8), "uint8", 0, 255), draw.values((rows, -(-blocks * bits // 8)), "uint8", 0, 255)
        attributes["bits"] = bits
    else:
        data, zeros = draw.values((rows, columns), dtype), draw.values((rows, blocks), dtype)
    return draw.case([data, indices, scales, zeros][:draw.int(3, 4)], attributes)


def _is_near_tie(x, scale, axis, opset):
    """Whether an element of a softmax of bytes lies so near to the middle between two bytes that the rounding of float32 decides: exponentials, their
    sum and the quotient err by 1e-6 of themselves, results are at most 128 steps."""
    values = x.astype("float64") * scale
    if opset < 13:
        values = values.reshape(int(numpy.prod(x.shape[:axis % x.ndim], initial=1)), -1)
        axis = 1
    exponentials = numpy.exp(values - values.max(axis=axis, keepdims=True))
    steps = 128 * exponentials / exponentials.sum(axis=axis, keepdims=True)
    return bool((numpy.abs(steps - numpy.floor(steps) - 0.5) < 4e-6 * steps).any())


@operator("QLinearSoftmax", domain=MICROSOFT)
def quantized_softmax(draw):
    shape, dtype, opset = draw.shape(1, 3, 2, zero=0, high=6), draw.one("uint8", "int8"), draw.one(11, 13)
    zero = numpy.array(0 if dtype == "uint8" else -128, dtype)
    inputs = [draw.values(shape, dtype, -99, 99), numpy.array(0.05, "float32"), draw.values((), dtype, 0, 9), numpy.array(1 / 128, "float32"), zero]
    axis = draw.axis(len(shape))
    tolerance = (0, 0, 1) if _is_near_tie(inputs[0], 0.05, axis, opset) else None
    return draw.case(inputs, {"opset": opset, "axis": axis}, tolerance=tolerance)


@operator("Unique", domain=MICROSOFT)
def unique(draw):
    return draw.case([draw.values((draw.int(1, 9),), "float32", 0, 1).round(1)], outputs=3)


@operator("DynamicQuantizeLSTM", domain=MICROSOFT)
def quantized_lstm(draw):
    steps, batch, width, hidden, dtype = draw.int(1, 4), draw.int(1, 3), draw.int(1, 6), draw.int(1, 5), draw.one("uint8", "int8")
    direction = draw.one("forward", "reverse", "bidirectional")
    count = 2 if direction == "bidirectional" else 1
    weights = [draw.values((count, size, 4 * hidden), dtype, -128, 255) for size in (width, hidden)]
    zeros = [draw.values((count,), dtype, 100, 120) if dtype == "uint8" else numpy.zeros(count, dtype) for _ in range(2)]
    scales = [draw.values((count,), low=0.002, high=0.004) for _ in range(2)]
    bias = draw.values((count, 8 * hidden)) if draw.maybe() else None
    lengths = draw.values((batch,), "int32", 1, steps) if draw.maybe(0.3) else None
    states = [draw.values((count, batch, hidden), low=-1, high=1) if draw.maybe() else None for _ in range(2)]
    peephole = draw.values((count, 3 * hidden)) if draw.maybe(0.3) else None
    # x in steps that are exact, its least and largest among them: only h is rounded on the way.
    x = draw.values((steps, batch, width), "uint8", 0, 255)
    x.flat[0], x.flat[-1] = 0, 255
    x = ((x.astype("float32") - 128) * numpy.float32(1 / 64)).astype("float32")
    inputs = [x, *weights, bias, lengths, *states, peephole, scales[0], zeros[0], scales[1], zeros[1]]
    # An element of h, which float32 leaves half-way between two steps, may be rounded either way. |h| < 1, so that a step is 2 / 255 at most, and
    # moves the sum of a gate by d = 2 / 255 * scale * max|r - zero|. The gates' sigmoids have a slope of 1/4, g's and the output's tanh one of 1:
    # with |c| <= 1, c = f c + i g moves by (1/4 + 1/4 + 1) d, and h = o tanh(c) by 1/4 d more.
    flip = 2 / 255 * scales[1].max() * numpy.abs(weights[1].astype("int32") - zeros[1].astype("int32").reshape(-1, 1, 1)).max()
    case = draw.case(inputs, {"hidden_size": hidden, "direction": direction}, 3, tolerance=(1e-4, 1e-5, 1.75 * float(flip)))
    case.constant = {1, 2}
    return case

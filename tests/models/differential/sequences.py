"""Sequences and optionals. What comes out is read again as tensors: each position, the number, the whole put together."""
import numpy
import onnx

from .draw import operator

_DTYPES = ("float32", "int64", "int32", "uint8", "bool", "float64")


def _node(op, inputs, outputs, **attributes):
    return onnx.helper.make_node(op, inputs, outputs, **attributes)


def _number(prefix, name, value):
    """A Constant of one int64."""
    return _node("Constant", [], [prefix + name], value=onnx.numpy_helper.from_array(numpy.array(value, "int64")))


def _parts(draw, count=None, alike=False):
    """Tensors of one dtype and rank, and with `alike` of one shape."""
    dtype, shape = draw.one(*_DTYPES), draw.shape(1, 3, zero=0)
    shapes = [shape if alike else tuple(draw.int(1, 4) for _ in shape) for _ in range(count or draw.int(1, 4))]
    return [draw.values(s, dtype) for s in shapes]


def _read(prefix, sequence, outputs):
    """Nodes that read the length and each position of a sequence into the outputs."""
    nodes = [_node("SequenceLength", [sequence], outputs[:1])]
    for i, name in enumerate(outputs[1:]):
        nodes += [_number(prefix, f"at{i}", i), _node("SequenceAt", [sequence, f"{prefix}at{i}"], [name])]
    return nodes


@operator("SequenceConstruct", "SequenceLength")
def construct(draw):
    parts = _parts(draw)

    def nodes(prefix, inputs, outputs):
        return [_node("SequenceConstruct", inputs, [f"{prefix}s"]), *_read(prefix, f"{prefix}s", outputs)]
    return draw.graph(parts, nodes, outputs=1 + len(parts))


@operator("SequenceAt")
def at(draw):
    parts = _parts(draw)
    place = numpy.array(draw.axis(len(parts)), draw.one("int32", "int64"))

    def nodes(prefix, inputs, outputs):
        return [_node("SequenceConstruct", inputs[:-1], [f"{prefix}s"]), _node("SequenceAt", [f"{prefix}s", inputs[-1]], outputs)]
    return draw.graph([*parts, place], nodes)


@operator("SequenceInsert", "SequenceEmpty")
def insert(draw):
    parts, dtype, from_empty = _parts(draw), draw.one("int32", "int64"), draw.op == "SequenceEmpty" or draw.maybe(0.3)
    kept = 0 if from_empty else draw.int(1, len(parts))
    places = [numpy.array(draw.int(-n, n), dtype) for n in range(kept, len(parts))]
    atend = draw.maybe(0.3)

    def nodes(prefix, inputs, outputs):
        values, where = inputs[:len(parts)], inputs[len(parts):]
        if kept == 0:
            made = [_node("SequenceEmpty", [], [f"{prefix}s0"], dtype=onnx.helper.np_dtype_to_tensor_dtype(parts[0].dtype))]
        else:
            made = [_node("SequenceConstruct", values[:kept], [f"{prefix}s0"])]
        for i, value in enumerate(values[kept:]):
            made.append(_node("SequenceInsert", [f"{prefix}s{i}", value, *([] if atend else [where[i]])], [f"{prefix}s{i + 1}"]))
        return made + _read(prefix, f"{prefix}s{len(parts) - kept}", outputs)
    return draw.graph([*parts, *([] if atend else places)], nodes, {"kept": kept}, outputs=1 + len(parts))


@operator("SequenceErase")
def erase(draw):
    parts = _parts(draw)
    place = [] if draw.maybe(0.3) else [numpy.array(draw.axis(len(parts)), draw.one("int32", "int64"))]

    def nodes(prefix, inputs, outputs):
        made = [_node("SequenceConstruct", inputs[:len(parts)], [f"{prefix}s"]), _node("SequenceErase", [f"{prefix}s", *inputs[len(parts):]], [f"{prefix}t"])]
        return made + _read(prefix, f"{prefix}t", outputs)
    return draw.graph([*parts, *place], nodes, outputs=len(parts))


@operator("ConcatFromSequence")
def concat(draw):
    stacked = draw.maybe()
    parts = _parts(draw, alike=True)
    rank = parts[0].ndim
    axis = draw.axis(rank, 1 if stacked else 0)
    if not stacked:
        parts = [numpy.repeat(part, draw.int(1, 3), axis) for part in parts]

    def nodes(prefix, inputs, outputs):
        made = _node("ConcatFromSequence", [f"{prefix}s"], outputs, axis=axis, **({"new_axis": 1} if stacked else {}))
        return [_node("SequenceConstruct", inputs, [f"{prefix}s"]), made]
    return draw.graph(parts, nodes, {"axis": axis, "new_axis": int(stacked)})


@operator("SplitToSequence")
def split(draw):
    x = draw.values(draw.shape(1, 3, zero=0), draw.one("float32", "int64", "int32", "float64"))
    axis, kind, dtype = draw.axis(x.ndim), draw.one("none", "scalar", "list"), draw.one("int32", "int64")
    length, lengths, attributes = x.shape[axis], [], draw.some(axis=axis, keepdims=draw.int(0, 1))
    if "axis" not in attributes:
        length = x.shape[0]
    if kind == "scalar":
        lengths = [numpy.array(draw.int(1, length), dtype)]
        count = -(-length // int(lengths[0]))
    elif kind == "list":
        cuts = sorted(draw.int(0, length) for _ in range(draw.int(0, 3)))
        lengths = [numpy.diff([0, *cuts, length]).astype(dtype)]
        count = len(lengths[0])
    else:
        count = length

    def nodes(prefix, inputs, outputs):
        return [_node("SplitToSequence", inputs, [f"{prefix}s"], **attributes), *_read(prefix, f"{prefix}s", outputs)]
    return draw.graph([x, *lengths], nodes, attributes, outputs=1 + count)


@operator("SequenceMap")
def sequence_map(draw):
    count, beside = draw.int(1, 3), draw.one("none", "tensor", "sequence")
    parts, others = [draw.values(draw.shape(1, 2, zero=0), "float32") for _ in range(count)], []
    if beside != "none":
        others = [draw.values((1,), "float32") for _ in range(1 if beside == "tensor" else count)]
    op = draw.one("Add", "Mul", "Sub")

    def nodes(prefix, inputs, outputs):
        a, b, y, z = (prefix + name for name in "abyz")
        info = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in ([a] if beside == "none" else [a, b])]
        results = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in (y, z)]
        body = onnx.helper.make_graph([_node(op, [a, a if beside == "none" else b], [y]), _node("Neg", [a], [z])], f"{prefix}body", info, results)
        made = [_node("SequenceConstruct", inputs[:count], [f"{prefix}s"])]
        second = {"none": [], "tensor": inputs[count:], "sequence": [f"{prefix}t"]}[beside]
        if beside == "sequence":
            made.append(_node("SequenceConstruct", inputs[count:], second))
        made.append(_node("SequenceMap", [f"{prefix}s", *second], [f"{prefix}u", f"{prefix}v"], body=body))
        return made + _read(prefix, f"{prefix}u", outputs[:1 + count]) + _read(f"{prefix}v", f"{prefix}v", outputs[1 + count:])
    return draw.graph([*parts, *others], nodes, {"beside": beside, "body": op}, outputs=2 * (1 + count))


@operator("Optional", "OptionalGetElement", "OptionalHasElement")
def optional(draw):
    x, empty = draw.values(draw.shape(), draw.one(*_DTYPES)), draw.maybe(0.3) and draw.op == "OptionalHasElement"

    def nodes(prefix, inputs, outputs):
        kind = onnx.helper.make_tensor_type_proto(onnx.helper.np_dtype_to_tensor_dtype(x.dtype), None)
        made = _node("Optional", [], [f"{prefix}o"], type=kind) if empty else _node("Optional", inputs, [f"{prefix}o"])
        rest = [] if empty else [_node("OptionalGetElement", [f"{prefix}o"], outputs[1:])]
        return [made, _node("OptionalHasElement", [f"{prefix}o"], outputs[:1]), *rest]
    return draw.graph([x], nodes, {"empty": empty}, outputs=1 if empty else 2)

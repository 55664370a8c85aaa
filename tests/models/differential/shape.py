"""Operators that move, cut, join and repeat, and those of shapes."""
import numpy

from .draw import FLOATS, INTEGERS, numpy_dtype, onnx_type, operator


def _factors(draw, total, count):
    """`count` dims with the product `total`."""
    dims = []
    for _ in range(count - 1):
        divisors = [d for d in range(1, total + 1) if total % d == 0]
        dims.append(draw.one(*divisors))
        total //= dims[-1]
    return [*dims, total]


@operator("Reshape")
def reshape(draw):
    shape = draw.shape(zero=0.05)
    total = int(numpy.prod(shape, dtype="int64"))
    attributes = draw.some(allowzero=draw.int(0, 1)) if draw.opset >= 14 else {}
    if total == 0:
        target = list(shape) if attributes.get("allowzero") == 1 else [*shape[:-1], 0] if shape[-1] == 0 else [0] * len(shape)
        target = [0 if a == 0 else b for a, b in zip(shape, target)]
    else:
        target = _factors(draw, total, draw.int(1, 5))
        if draw.maybe():
            target[draw.int(0, len(target) - 1)] = -1
        elif not attributes.get("allowzero") and draw.maybe():
            target = [0 if i < len(shape) and d == shape[i] else d for i, d in enumerate(target)]
    if total == 1 and shape == () and draw.maybe():
        target = []
    return draw.case([draw.values(shape, draw.dtype(), wild=True), numpy.array(target, "int64")], attributes)


@operator("Flatten")
def flatten(draw):
    shape = draw.shape(1)
    axis = draw.int(0 if draw.opset < 11 else -len(shape), len(shape))
    return draw.case([draw.values(shape, draw.dtype(), wild=True)], draw.some(axis=axis) if len(shape) > 1 else {"axis": axis})


@operator("Squeeze", "Unsqueeze")
def squeeze(draw):
    shape, dtype = draw.shape(0, 3), draw.dtype()
    rank = len(shape) + draw.int(1, 2)
    axes = [int(a) for a in draw.rng.permutation(rank)[:rank - len(shape)]]
    if draw.op == "Squeeze":
        rest = list(shape)
        shape = tuple(1 if i in axes else rest.pop(0) for i in range(rank))
    if draw.opset >= 11:
        axes = [a - rank if draw.maybe(0.4) else a for a in axes]
    x = draw.values(shape, dtype, wild=True)
    if draw.op == "Squeeze" and draw.maybe(0.2):
        return draw.case([x])
    if draw.opset < 13:
        return draw.case([x], {"axes": axes})
    return draw.case([x, numpy.array(axes, "int64")])


@operator("Transpose")
def transpose(draw):
    shape = draw.shape(0, 5)
    perm = [int(i) for i in draw.rng.permutation(len(shape))]
    return draw.case([draw.values(shape, draw.dtype(), wild=True)], draw.some(perm=perm) if perm else {})


@operator("Concat")
def concat(draw):
    shape, dtype = draw.shape(1), draw.dtype()
    axis = draw.axis(len(shape)) if draw.opset >= 11 else draw.int(0, len(shape) - 1)
    shapes = [[*shape] for _ in range(draw.int(1, 4))]
    for s in shapes:
        s[axis] = draw.dim(zero=0.1)
    return draw.case([draw.values(s, dtype, wild=True) for s in shapes], {"axis": axis})


@operator("Split")
def split(draw):
    shape, dtype, parts = list(draw.shape(1)), draw.dtype(), draw.int(1, 3)
    axis = draw.axis(len(shape)) if draw.opset >= 11 else draw.int(0, len(shape) - 1)
    sizes = [draw.dim(zero=0.08) for _ in range(parts)]
    attributes = {"axis": axis} if axis % len(shape) or draw.maybe() else {}
    if draw.maybe(0.4):  # equal parts
        shape[axis] = parts * draw.int(1, 3)
        if draw.opset >= 18:
            attributes["num_outputs"] = parts
            if parts == 3 and draw.maybe():
                shape[axis] -= 1
        return draw.case([draw.values(shape, dtype, wild=True)], attributes, parts)
    shape[axis] = sum(sizes)
    if draw.opset < 13:
        return draw.case([draw.values(shape, dtype, wild=True)], {**attributes, "split": sizes}, parts)
    return draw.case([draw.values(shape, dtype, wild=True), numpy.array(sizes, "int64")], attributes, parts)


@operator("Slice")
def slice_(draw):
    shape, dtype = draw.shape(1, zero=0.05), draw.dtype()
    axes = sorted(int(a) for a in draw.rng.permutation(len(shape))[:draw.int(1, len(shape))])
    plain = axes == list(range(len(axes))) and draw.maybe()
    steps = [draw.one(1, 1, 2, -1, -2, 3) for _ in axes]
    bound = numpy.iinfo("int64")
    starts = [draw.one(draw.int(-shape[a] - 1, shape[a] + 1), 0, bound.min + 1) for a in axes]
    ends = [draw.one(draw.int(-shape[a] - 1, shape[a] + 1), bound.max if step > 0 else bound.min + 1) for a, step in zip(axes, steps)]
    if draw.opset < 10:
        starts = [draw.int(-shape[a], shape[a]) for a in axes]
        ends = [draw.one(draw.int(-shape[a], shape[a]), bound.max) for a in axes]
        return draw.case([draw.values(shape, dtype, wild=True)], {"starts": starts, "ends": ends, **({} if plain else {"axes": axes})})
    if draw.maybe(0.3):
        steps = None
        ends = [draw.one(draw.int(-shape[a] - 1, shape[a] + 1), bound.max) for a in axes]
    kind = "int64" if draw.maybe(0.7) else "int32"
    if kind == "int32":
        starts, ends = ([max(-2**31 + 1, min(2**31 - 1, v)) for v in values] for values in (starts, ends))
    given = [a - len(shape) if draw.maybe(0.3) else a for a in axes]
    more = [None if plain else given, steps]
    while more and more[-1] is None:
        more.pop()
    return draw.case([draw.values(shape, dtype, wild=True), *(None if v is None else numpy.array(v, kind) for v in [starts, ends, *more])])


@operator("Pad")
def pad(draw):
    shape, dtype = draw.shape(1, 4, zero=0), draw.dtype()
    modes = ["constant", "reflect", "edge"] + (["wrap"] if draw.opset >= 19 else [])
    mode = draw.one("constant", *modes)
    axes = draw.axes(len(shape), 1) if draw.opset >= 18 and draw.maybe(0.4) else list(range(len(shape)))
    room = [shape[a] - 1 if mode == "reflect" else 3 for a in axes]
    pads = [draw.int(0, max(min(r, 3), 0)) for r in room * 2]
    if mode in ("constant", "edge") and draw.maybe(0.3):
        at = draw.int(0, len(pads) - 1)
        pads[at] = -draw.int(0, max(shape[axes[at % len(axes)]] - 1, 0))
        pads[(at + len(axes)) % len(pads)] = 0
    attributes = {"mode": mode} if mode != "constant" or draw.maybe() else {}
    x = draw.values(shape, dtype, wild=True)
    value = draw.values((), dtype)
    if draw.opset < 11:
        return draw.case([x], {**attributes, "pads": pads, **(draw.some(value=float(value)) if dtype in FLOATS else {})})
    inputs = [x, numpy.array(pads, "int64"), value if mode == "constant" and draw.maybe() else None]
    if axes != list(range(len(shape))):
        inputs.append(numpy.array(axes, draw.one("int64", "int32")))
    while inputs[-1] is None:
        inputs.pop()
    return draw.case(inputs, attributes)


@operator("Tile")
def tile(draw):
    shape = draw.shape(1)
    return draw.case([draw.values(shape, draw.dtype(), wild=True), numpy.array([draw.one(1, 2, 3, 0 if draw.maybe(0.1) else 1) for _ in shape], "int64")])


@operator("Expand")
def expand(draw):
    whole = draw.shape()
    target = draw.broadcast_to(whole) if draw.maybe(0.4) else whole
    return draw.case([draw.values(draw.broadcast_to(whole), draw.dtype()), numpy.array(target, "int64")])


@operator("DepthToSpace", "SpaceToDepth")
def depth_to_space(draw):
    block, dtype = draw.int(1, 3), draw.dtype()
    n, c, h, w = draw.int(1, 2), draw.int(1, 3), draw.int(1, 3), draw.int(1, 3)
    modes = draw.op == "DepthToSpace" and draw.opset >= 11 or draw.opset >= 28
    attributes = {"blocksize": block, **(draw.some(mode=draw.one("DCR", "CRD")) if modes else {})}
    shape = (n, c * block * block, h, w) if draw.op == "DepthToSpace" else (n, c, h * block, w * block)
    return draw.case([draw.values(shape, dtype, wild=True)], attributes)


@operator("Shape")
def shape_of(draw):
    shape = draw.shape()
    attributes = draw.some(start=draw.int(-5, 5), end=draw.int(-5, 5)) if draw.opset >= 15 else {}
    return draw.case([draw.values(shape, draw.dtype(), wild=True)], attributes)


@operator("Size")
def size(draw):
    return draw.case([draw.values(draw.shape(), draw.dtype())])


@operator("ConstantOfShape")
def constant_of_shape(draw):
    dtype = draw.one("float32", "float64", "float16", *INTEGERS, "bool")
    attributes = draw.some(value=_tensor(draw.values((1,), dtype)))
    return draw.case([numpy.array(draw.shape(zero=0.1), "int64")], attributes)


def _tensor(array):
    import onnx
    return onnx.numpy_helper.from_array(array)


@operator("Constant")
def constant(draw):
    kinds = [{"value": _tensor(draw.values(draw.shape(), draw.one("float32", "int64", "uint8", "float16", "bool")))}]
    if draw.opset >= 12:
        kinds += [{"value_int": draw.int(-9, 9)}, {"value_float": draw.real(-9, 9)}, {"value_ints": [draw.int(-9, 9) for _ in range(draw.int(1, 4))]},
                  {"value_floats": [draw.real(-9, 9) for _ in range(draw.int(1, 4))]}]
    return draw.case([], draw.one(*kinds))


@operator("EyeLike")
def eye_like(draw):
    attributes = draw.some(k=draw.int(-4, 4), dtype=onnx_type(numpy_dtype(draw.one("float32", "float64", "int32", "int64", "uint8"))))
    return draw.case([draw.values((draw.dim(), draw.dim()), draw.dtype(*FLOATS, "int32", "int64"))], attributes)


@operator("Trilu")
def trilu(draw):
    shape = draw.shape(2)
    inputs = [draw.values(shape, draw.dtype(), wild=True), numpy.array(draw.int(-6, 6), "int64")][:draw.int(1, 2)]
    return draw.case(inputs, draw.some(upper=draw.int(0, 1)))


@operator("Range")
def range_(draw):
    dtype = draw.dtype()
    step = draw.one(1, 2, 3, -1, -2) * (draw.one(1, 0.5, 0.25) if dtype in FLOATS else 1)
    start = draw.int(-9, 9)
    return draw.case([numpy.array(v, dtype) for v in (start, start + step * draw.int(-1, 9), step)])


@operator("CenterCropPad")
def center_crop_pad(draw):
    shape = draw.shape(1, zero=0)
    axes = draw.axes(len(shape), 1) if draw.maybe() else None
    target = [draw.int(1, 7) for _ in (axes if axes is not None else shape)]
    x, wanted = draw.values(shape, draw.dtype(), wild=True), numpy.array(target, draw.dtype(index=1))
    return draw.case([x, wanted], {} if axes is None else {"axes": axes})


@operator("ReverseSequence")
def reverse_sequence(draw):
    shape = draw.shape(2, 4, zero=0)
    batch = draw.int(0, 1)
    lengths = [draw.int(1, shape[1 - batch]) for _ in range(shape[batch])]
    attributes = {"batch_axis": batch, "time_axis": 1 - batch} if batch == 0 else draw.some(batch_axis=1, time_axis=0)
    return draw.case([draw.values(shape, draw.dtype(), wild=True), numpy.array(lengths, "int64")], attributes)

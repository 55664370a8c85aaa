"""Operators that read or write by index, and those whose output's size depends on values."""
import numpy

from .draw import FLOATS, INTEGERS, operator


@operator("Gather", "GatherElements")
def gather(draw):
    shape = draw.shape(1, zero=0)
    negative = draw.opset >= 11
    axis = draw.axis(len(shape)) if negative else draw.int(0, len(shape) - 1)
    inner = draw.shape(0, 3) if draw.op == "Gather" else [draw.int(0, d) if i != axis % len(shape) else draw.dim() for i, d in enumerate(shape)]
    attributes = {"axis": axis} if axis or draw.maybe() else {}
    return draw.case([draw.values(shape, draw.dtype(), wild=True), draw.indices(inner, shape[axis], draw.one("int64", "int32"), negative)], attributes)


@operator("GatherND")
def gather_nd(draw):
    shape = draw.shape(1, zero=0)
    batch = draw.int(0, len(shape) - 1) if draw.opset >= 12 and draw.maybe(0.4) else 0
    depth = draw.int(1, len(shape) - batch)
    outer = [*shape[:batch], *draw.shape(0 if batch else 1, 2)]
    columns = [draw.indices(outer, shape[batch + i]) for i in range(depth)]
    return draw.case([draw.values(shape, draw.dtype(), wild=True), numpy.stack(columns, -1)], {"batch_dims": batch} if batch else {})


def _reduction(draw, dtype, first, second):
    """A reduction that the opset has, or none."""
    choices = ["none"]
    if dtype in FLOATS + INTEGERS:
        choices += (["add", "mul"] if draw.opset >= first else []) + (["max", "min"] if draw.opset >= second else [])
    choice = draw.one(*choices)
    return {"reduction": choice} if choice != "none" or draw.opset >= first and draw.maybe() else {}


@operator("ScatterElements", "Scatter")
def scatter_elements(draw):
    shape, dtype = draw.shape(1, zero=0), draw.dtype()
    axis = draw.axis(len(shape)) if draw.op != "Scatter" else draw.int(0, len(shape) - 1)
    attributes = draw.some(axis=axis)
    axis = attributes.get("axis", 0) % len(shape)
    attributes.update(_reduction(draw, dtype, 16, 18) if draw.op != "Scatter" else {})
    inner = [draw.int(1, d) for d in shape]
    # Each index once along the axis, as writing twice has no defined result.
    order = numpy.argsort(draw.rng.random([shape[axis] if i == axis else d for i, d in enumerate(inner)]), axis=axis)
    indices = numpy.take(order, range(inner[axis]), axis=axis).astype(draw.one("int64", "int32"))
    if draw.op != "Scatter" and draw.maybe():
        indices = (indices - shape[axis]).astype(indices.dtype)
    return draw.case([draw.values(shape, dtype, wild=True), indices, draw.values(inner, dtype, wild=True)], attributes)


@operator("ScatterND")
def scatter_nd(draw):
    shape, dtype = draw.shape(1, zero=0), draw.dtype()
    depth = draw.int(1, len(shape))
    attributes = _reduction(draw, dtype, 16, 18)
    places = int(numpy.prod(shape[:depth]))
    count = draw.int(1, places)
    chosen = draw.rng.permutation(places)[:count] if not attributes.get("reduction", "none") != "none" else draw.rng.integers(0, places, count)
    indices = numpy.stack(numpy.unravel_index(chosen, shape[:depth]), -1).astype("int64")
    if draw.maybe(0.3):
        indices = indices - numpy.array(shape[:depth])
    return draw.case([draw.values(shape, dtype, wild=True), indices, draw.values([count, *shape[depth:]], dtype, -2, 2, wild=True)], attributes)


@operator("TensorScatter")
def tensor_scatter(draw):
    batch, heads, length, width = draw.int(1, 3), draw.int(1, 2), draw.int(1, 5), draw.int(1, 3)
    four = draw.maybe()
    shape = (batch, heads, length, width) if four else (batch, length, width)
    axis = -2
    steps = draw.int(1, length)
    update = list(shape)
    update[axis] = steps
    dtype = draw.dtype()
    mode = draw.one("linear", "circular")
    at = numpy.array([draw.int(0, length - (steps if mode == "linear" else 1)) for _ in range(batch)], "int64")
    inputs = [draw.values(shape, dtype, wild=True), draw.values(update, dtype)] + ([at] if draw.maybe(0.7) else [])
    return draw.case(inputs, {**draw.some(axis=axis), **({"mode": mode} if mode != "linear" or draw.maybe() else {})})


@operator("OneHot")
def one_hot(draw):
    depth, kind = draw.int(1, 5), draw.dtype("int32", "int64", "float32")
    shape = draw.shape(0, 3)
    indices = draw.indices(shape, depth, kind)
    if draw.maybe(0.3):
        indices = draw.rng.integers(-depth - 2, depth + 2, shape).astype(kind)
    values = draw.values((2,), draw.one("float32", "int64", "int32"))
    return draw.case([indices, numpy.array(draw.one(depth, [depth]), draw.one("int64", "int32")), values], draw.some(axis=draw.axis(len(shape), 1)))


@operator("NonZero")
def non_zero(draw):
    return draw.case([draw.values(draw.shape(1, zero=0.06), draw.dtype(), -1, 1, wild=True)])


@operator("Compress")
def compress(draw):
    shape = draw.shape(1)
    axis = draw.axis(len(shape)) if draw.opset >= 11 else draw.int(0, len(shape) - 1)
    attributes = draw.some(axis=axis)
    size = shape[axis] if attributes else int(numpy.prod(shape))
    return draw.case([draw.values(shape, draw.dtype(), wild=True), draw.values((draw.int(0, size),), "bool")], attributes)


@operator("Unique")
def unique(draw):
    shape = draw.shape(1, 3, zero=0)
    attributes = draw.some(sorted=draw.int(0, 1), axis=draw.axis(len(shape)))
    x = draw.values(shape, draw.dtype(), -1, 2)
    return draw.case([numpy.round(x.astype("float32")).astype(x.dtype) if x.dtype.kind == "f" else x], attributes, draw.int(1, 4))

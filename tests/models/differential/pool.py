"""Pooling of windows and of whole channels, and its opposite."""
import numpy

from .conv import window
from .draw import operator


def _pooling(draw):
    x, w, attributes = window(draw, group=False)
    rank = len(x) - 2
    attributes["kernel_shape"] = list(w[2:])
    dilated = draw.op == "MaxPool" and draw.opset >= 10 or draw.op == "AveragePool" and draw.opset >= 19 or draw.op == "LpPool" and draw.opset >= 18
    attributes.pop("group", None)
    if not dilated:
        attributes.pop("dilations", None)
    dilations = attributes.get("dilations", [1] * rank)
    if "pads" in attributes:  # less than the window, or some of them are empty
        attributes["pads"] = [min(p, w[2 + i % rank] - 1) for i, p in enumerate(attributes["pads"])]
    sizes = [max(n, (k - 1) * d + 1) for n, k, d in zip(x[2:], w[2:], dilations)]
    return (*x[:2], *sizes), attributes


@operator("AveragePool")
def average_pool(draw):
    shape, attributes = _pooling(draw)
    attributes.update(draw.some(count_include_pad=draw.int(0, 1)))
    if draw.opset >= 10:
        attributes.update(draw.some(ceil_mode=draw.int(0, 1)))
    return draw.case([draw.values(shape, draw.dtype(), wild=True)], attributes)


@operator("MaxPool")
def max_pool(draw):
    shape, attributes = _pooling(draw)
    if draw.opset >= 10:
        attributes.update(draw.some(ceil_mode=draw.int(0, 1)))
    outputs = draw.int(1, 2) if draw.opset >= 8 else 1
    if outputs == 2 and draw.maybe():
        attributes["storage_order"] = draw.int(0, 1)
    return draw.case([draw.values(shape, draw.dtype(), -99, 99, wild=True)], attributes, outputs)


@operator("LpPool")
def lp_pool(draw):
    shape, attributes = _pooling(draw)
    attributes.update(draw.some(p=draw.int(1, 3)))
    if draw.opset >= 18:
        attributes.update(draw.some(ceil_mode=draw.int(0, 1)))
    return draw.case([draw.values(shape, draw.dtype(), wild=True)], attributes)


@operator("GlobalAveragePool", "GlobalMaxPool")
def global_pool(draw):
    ranks = (4, 4) if draw.maybe() else (3, 5)
    return draw.case([draw.values(draw.shape(*ranks, zero=0), draw.dtype(), wild=True)])


@operator("GlobalLpPool")
def global_lp_pool(draw):
    return draw.case([draw.values(draw.shape(3, 5, zero=0), draw.dtype())], draw.some(p=draw.int(1, 3)))


@operator("MaxUnpool")
def max_unpool(draw):
    n, c, h, w = draw.int(1, 2), draw.int(1, 2), draw.int(1, 3), draw.int(1, 3)
    size = (n, c, 2 * h, 2 * w)
    cells = numpy.stack([numpy.add.outer(numpy.arange(h) * 4 * w, numpy.arange(w) * 2)] * (n * c)).reshape(n, c, h, w)
    within = draw.rng.integers(0, 2, (n, c, h, w)) * 2 * w + draw.rng.integers(0, 2, (n, c, h, w))
    planes = (numpy.arange(n * c) * 4 * h * w).reshape(n, c, 1, 1)
    inputs = [draw.values((n, c, h, w), draw.dtype()), (cells + within + planes).astype("int64")]
    if draw.maybe(0.3):
        inputs.append(numpy.array(size, "int64"))
    return draw.case(inputs, {"kernel_shape": [2, 2], "strides": [2, 2]})

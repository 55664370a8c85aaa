"""Convolutions of every kind."""
import numpy

from .draw import operator


def window(draw, ranks=(1, 3), group=True):
    """Dims of the input and of the weights of a convolution, and its attributes: at least one output element along each axis."""
    rank = draw.int(*ranks)
    groups = draw.one(1, 1, 2, 3) if group else 1
    kernel = [draw.int(1, 3) for _ in range(rank)]
    strides, dilations = ([draw.one(1, 1, 2, 3) for _ in range(rank)] for _ in range(2))
    auto = draw.one("NOTSET", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")
    pads = [draw.int(0, 2) for _ in range(2 * rank)] if auto == "NOTSET" and draw.maybe(0.6) else [0] * (2 * rank)
    if auto.startswith("SAME"):
        dilations = [1] * rank
        strides = [min(s, k) for s, k in zip(strides, kernel)]  # or the padding would be negative
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilations)]
    sizes = [draw.int(max(span - pads[i] - pads[i + rank], 1), max(span, 1) + 4) for i, span in enumerate(spans)]
    attributes = draw.some(kernel_shape=kernel)
    for key, value, plain in (("strides", strides, 1), ("dilations", dilations, 1), ("pads", pads, 0)):
        if any(v != plain for v in value) or draw.maybe(0.3) and not (key == "pads" and auto != "NOTSET"):
            attributes[key] = value
    if auto != "NOTSET" or draw.maybe(0.2):
        attributes["auto_pad"] = auto
    if groups > 1 or draw.maybe(0.2):
        attributes["group"] = groups
    channels, filters = (groups * (draw.int(8, 40) if draw.op == "Conv" and draw.maybe(0.15) else draw.int(1, 3)) for _ in range(2))
    return (draw.int(1, 2), channels, *sizes), (filters, channels // groups, *kernel), attributes


@operator("Conv")
def conv(draw):
    x, w, attributes = window(draw)
    dtype = draw.dtype()
    return draw.case([draw.values(x, dtype), draw.values(w, dtype)] + ([draw.values((w[0],), dtype)] if draw.maybe() else []), attributes)


@operator("ConvTranspose")
def conv_transpose(draw):
    x, w, attributes = window(draw)
    rank, dtype = len(x) - 2, draw.dtype()
    groups = attributes.get("group", 1)
    w = (x[1], draw.int(1, 3), *w[2:])
    strides, dilations = attributes.get("strides", [1] * rank), attributes.get("dilations", [1] * rank)
    if attributes.get("auto_pad", "NOTSET") == "NOTSET":
        spans = [s * (n - 1) + (k - 1) * d + 1 for s, n, k, d in zip(strides, x[2:], w[2:], dilations)]
        pads = attributes.get("pads", [0] * (2 * rank))
        if any(span - a - b < 1 for span, a, b in zip(spans, pads, pads[rank:])):
            attributes.pop("pads", None)
        if draw.maybe(0.3):
            attributes["output_padding"] = [draw.int(0, max(s, d) - 1) for s, d in zip(strides, dilations)]
    bias = [draw.values((w[1] * groups,), dtype)] if draw.maybe() else []
    return draw.case([draw.values(x, dtype), draw.values(w, dtype), *bias], attributes)


@operator("DeformConv")
def deform_conv(draw):
    x, w, attributes = window(draw, ranks=(2, 2))
    attributes.pop("auto_pad", None)
    strides, dilations, pads = (attributes.get(key, plain) for key, plain in (("strides", [1, 1]), ("dilations", [1, 1]), ("pads", [0] * 4)))
    out = [(n + pads[i] + pads[i + 2] - (k - 1) * d - 1) // s + 1 for i, (n, k, d, s) in enumerate(zip(x[2:], w[2:], dilations, strides))]
    if min(out) < 1:
        attributes["pads"] = pads = [2] * 4
        out = [(n + 4 - (k - 1) * d - 1) // s + 1 for n, k, d, s in zip(x[2:], w[2:], dilations, strides)]
    offsets = draw.one(*[g for g in (1, 2, 3) if x[1] % g == 0])
    if offsets > 1 or draw.maybe():
        attributes["offset_group"] = offsets
    points, dtype = w[2] * w[3], draw.dtype()
    inputs = [draw.values(x, dtype), draw.values(w, dtype), draw.values((x[0], offsets * points * 2, *out), dtype, -2, 2)]
    inputs += [draw.values((w[0],), dtype) if draw.maybe() else None, draw.values((x[0], offsets * points, *out), dtype) if draw.maybe() else None]
    while inputs[-1] is None:
        inputs.pop()
    return draw.case(inputs, attributes)


@operator("Col2Im")
def col_to_image(draw):
    rank, dtype = draw.int(1, 3), draw.dtype()
    block = [draw.int(1, 3) for _ in range(rank)]
    strides, dilations = ([draw.int(1, 2) for _ in range(rank)] for _ in range(2))
    pads = [draw.int(0, 1) for _ in range(2 * rank)]
    image = [draw.int((b - 1) * d + 1, (b - 1) * d + 5) for b, d in zip(block, dilations)]
    count = [(n + pads[i] + pads[i + rank] - (b - 1) * d - 1) // s + 1 for i, (n, b, d, s) in enumerate(zip(image, block, dilations, strides))]
    shape = (draw.int(1, 2), draw.int(1, 3) * int(numpy.prod(block)), int(numpy.prod(count)))
    attributes = {"strides": strides, "dilations": dilations, "pads": pads}
    plain = {"strides": 1, "dilations": 1, "pads": 0}
    attributes = {key: value for key, value in attributes.items() if any(v != plain[key] for v in value) or draw.maybe()}
    return draw.case([draw.values(shape, dtype), numpy.array(image, "int64"), numpy.array(block, "int64")], attributes)


@operator("CausalConvWithState")
def causal_conv(draw):
    batch, channels, length, kernel, dtype = draw.int(1, 2), draw.int(1, 3), draw.int(1, 6), draw.int(1, 4), draw.dtype()
    inputs = [draw.values((batch, channels, length), dtype), draw.values((channels, 1, kernel), dtype),
              draw.values((channels,), dtype) if draw.maybe() else None,
              draw.values((batch, channels, kernel - 1), dtype) if kernel > 1 and draw.maybe() else None]
    while inputs[-1] is None:
        inputs.pop()
    return draw.case(inputs, draw.some(activation=draw.one("none", "silu", "swish")), 2)

"""Operators that draw: no other engine gives their numbers. Each case draws twice with one seed and once with another, and is checked for
shape, dtype, bounds, mean and spread, six standard errors wide."""
import numpy
import onnx

from .draw import numpy_dtype, onnx_type, operator

_WIDE = 6
_LONG = (200, 20)  # elements that a mean is taken of


def _twice(op, attributes, seed):
    """Nodes with this seed, with it again and with another."""
    number = int if op == "Dropout" else float

    def nodes(prefix, inputs, outputs):
        size = len(outputs) // 3
        return [onnx.helper.make_node(op, inputs, outputs[i * size:(i + 1) * size], seed=number(seed + i // 2), **attributes) for i in range(3)]
    return nodes


def _case(draw, inputs, attributes, check, outputs=1, varies=True):
    def checked(results):
        first, again, other = results[:outputs], results[outputs:2 * outputs], results[2 * outputs:]
        if any(a.dtype != b.dtype or a.tobytes() != b.tobytes() for a, b in zip(first, again)):
            return "one seed gives unlike bits"
        if varies and first[0].size > 100 and first[0].min() != first[0].max() and first[0].tobytes() == other[0].tobytes():
            return "another seed gives the same bits"
        return check(first)
    return draw.graph(inputs, _twice(draw.op, attributes, draw.int(1, 9999)), attributes, 3 * outputs, check=checked)


def _moments(x, mean, spread):
    """How the mean or the spread of what was drawn is too far off; "" if it is not. The mean of what is false or true says its spread."""
    is_bool, x = x.dtype == bool, x.astype("float64").ravel()
    if x.size < 1000:
        return ""
    error = spread / x.size ** 0.5
    if abs(x.mean() - mean) > _WIDE * error + 1e-3 * max(1, abs(mean)):
        return f"the mean is {x.mean()}, not {mean}"
    if spread > 0 and not is_bool and not abs(x.std() - spread) < _WIDE * spread / (x.size ** 0.5) + 5e-3 * spread:
        return f"the spread is {x.std()}, not {spread}"
    return ""


def _kind(x, shape, dtype):
    return "" if x.shape == tuple(shape) and x.dtype == numpy_dtype(dtype) else f"is {x.dtype}{list(x.shape)}, not {dtype}{list(shape)}"


def _shape(draw):
    return _LONG if draw.maybe(0.7) else draw.shape(0, 4)


@operator("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
def plain(draw):
    shape, dtype, like, uniform = _shape(draw), draw.one("float32", "float64", "float16"), draw.op.endswith("Like"), "Uniform" in draw.op
    given = draw.one("float32", "float64", "int32", "float16") if like else None
    attributes = {} if like and given != "int32" and draw.maybe() else {"dtype": onnx_type(numpy_dtype(dtype))}
    dtype = dtype if attributes else given
    if not like:
        shape = shape or (3,)
        attributes["shape"] = list(shape)
    low, width = draw.real(-3, 3), draw.real(0.5, 4)
    if draw.maybe():
        attributes.update({"low": low, "high": low + width} if uniform else {"mean": low, "scale": width})
    else:
        low, width = 0, 1

    def check(results):
        x, = results
        wrong = _kind(x, shape, dtype)
        if uniform:
            slack = 1e-2 if dtype == "float16" else 1e-6
            if not wrong and x.size and not (x.min() >= low - slack and x.max() <= low + width + slack):
                return f"goes from {x.min()} to {x.max()}"
            return wrong or _moments(x, low + width / 2, width / 12 ** 0.5)
        return wrong or _moments(x, low, width)
    return _case(draw, [draw.values(shape, given)] if like else [], attributes, check)


@operator("Bernoulli")
def bernoulli(draw):
    shape, given = _shape(draw), draw.one("float32", "float64", "float16")
    dtype = draw.one("float32", "float64", "int32", "uint8", "bool", "int64")
    attributes = {"dtype": onnx_type(numpy_dtype(dtype))} if draw.maybe() else {}
    chance = draw.one(0.0, 1.0, 0.5, 0.1, 0.9)

    def check(results):
        x, = results
        wrong = _kind(x, shape, dtype if attributes else given)
        if not wrong and not numpy.isin(x, (0, 1)).all():
            return "is neither 0 nor 1"
        return wrong or _moments(x.astype(bool), chance, (chance * (1 - chance)) ** 0.5)
    return _case(draw, [numpy.full(shape, chance, given)], attributes, check)


@operator("Multinomial")
def multinomial(draw):
    classes, rows, count = draw.int(1, 4), draw.int(1, 3), draw.one(1, 7, 2000)
    weights = draw.values((1, classes), low=0.2, high=3)
    x = numpy.repeat(numpy.log(weights), rows, 0).astype(draw.one("float32", "float64"))
    attributes = {"sample_size": count, **draw.some(dtype=onnx.TensorProto.INT64)}
    chances = weights[0] / weights.sum()

    def check(results):
        y, = results
        wrong = _kind(y, (rows, count), "int64" if "dtype" in attributes else "int32")
        if not wrong and not numpy.isin(y, numpy.arange(classes)).all():
            return "is no class"
        parts = [_moments(y == i, float(chance), float(chance * (1 - chance)) ** 0.5) for i, chance in enumerate(chances)]
        return wrong or "; ".join(filter(None, parts))
    return _case(draw, [x], attributes, check)


def dropout_in_training(draw):
    """What is kept is divided by the chance of it."""
    shape, dtype, ratio, outputs = _shape(draw), draw.one("float32", "float64", "float16"), draw.one(0.0, 0.5, 0.25, 0.75), draw.int(1, 2)
    x = draw.values(shape, dtype, 1, 2)

    def check(results):
        y, kept = results[0], results[0] != 0
        wrong = _kind(y, shape, dtype) or (_kind(results[1], shape, "bool") if outputs == 2 else "")
        if not wrong and outputs == 2 and not numpy.array_equal(results[1], kept):
            return "the mask is not what was kept"
        if not wrong and not numpy.allclose(y[kept].astype("float64"), (x[kept] / (1 - ratio)).astype("float64"), 2e-3):
            return "what was kept is not divided"
        return wrong or _moments(kept, 1 - ratio, (ratio * (1 - ratio)) ** 0.5)
    return _case(draw, [x, numpy.array(ratio, "float32"), numpy.array(True)], {}, check, outputs, ratio > 0)

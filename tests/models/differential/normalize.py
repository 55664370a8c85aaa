"""Normalizations with learned scales, and losses."""
from .draw import operator


@operator("BatchNormalization")
def batch_norm(draw):
    shape, dtype = draw.shape(2, 4, zero=0), draw.dtype()
    attributes = {"spatial": 0} if draw.opset < 9 and draw.maybe(0.3) else {}
    parameters = shape[1:] if attributes else (shape[1],)
    vectors = [draw.values(parameters, dtype) for _ in range(3)] + [draw.values(parameters, dtype, 0.1, 3)]
    attributes |= draw.some(epsilon=draw.one(1e-5, 1e-3), momentum=draw.real(0.1, 0.9))
    if draw.opset >= 14 and draw.maybe(0.2):
        return draw.case([draw.values(shape, dtype, wild=True), *vectors], {**attributes, "training_mode": 1}, 3)
    return draw.case([draw.values(shape, dtype, wild=True), *vectors], attributes)


@operator("InstanceNormalization")
def instance_norm(draw):
    shape, dtype = draw.shape(3, 4, 2, zero=0), draw.dtype()
    return draw.case([draw.spread(shape, dtype), *(draw.values((shape[1],), dtype) for _ in range(2))], draw.some(epsilon=draw.one(1e-5, 1e-3)))


@operator("LayerNormalization", "RMSNormalization")
def layer_norm(draw):
    shape, dtype = draw.shape(1, 4, 2, zero=0), draw.dtype()
    axis = draw.axis(len(shape))
    attributes = draw.some(epsilon=draw.one(1e-5, 1e-3))
    if axis != -1 or draw.maybe():
        attributes["axis"] = axis
    inner = shape[axis:] if axis < 0 else shape[axis:]
    inputs = [draw.values(shape, dtype), draw.values(inner, dtype)]
    if draw.op == "LayerNormalization" and draw.maybe():
        inputs.append(draw.values(inner, dtype))
    return draw.case(inputs, attributes, draw.int(1, 3) if draw.op == "LayerNormalization" and dtype == "float32" else 1)


@operator("GroupNormalization")
def group_norm(draw):
    groups, dtype = draw.int(1, 3), draw.dtype()
    channels = groups * draw.int(1, 3)
    vector = (channels,) if draw.opset >= 21 else (groups,)
    x = draw.spread((draw.int(1, 2), channels, *draw.shape(1, 2, 2, zero=0)), dtype)
    return draw.case([x, draw.values(vector, dtype), draw.values(vector, dtype)], {"num_groups": groups, **draw.some(epsilon=draw.one(1e-5, 1e-3))})


@operator("LRN")
def lrn(draw):
    attributes = {"size": draw.one(1, 3, 5), **draw.some(alpha=draw.real(0, 1), beta=draw.real(0.3, 1), bias=draw.real(0.5, 2))}
    return draw.case([draw.values(draw.shape(4, 4, zero=0), draw.dtype())], attributes)


def _loss_inputs(draw, low):
    classes, inner, dtype = draw.int(1, 5), draw.shape(0, 2, zero=0), draw.dtype()
    n = draw.int(1, 4)
    labels = draw.rng.integers(0, classes, (n, *inner)).astype(draw.one("int64", "int32"))
    attributes = draw.some(reduction=draw.one("none", "sum", "mean"))
    if draw.maybe(0.4):
        attributes["ignore_index"] = int(draw.one(draw.int(0, classes - 1), -1))
        if attributes["ignore_index"] == -1:
            labels[draw.rng.random(labels.shape) < 0.2] = -1
        labels.flat[0] = (attributes["ignore_index"] + 1) % classes  # or the mean is of nothing
    inputs = [draw.values((n, classes, *inner), dtype, low, 3), labels]
    if draw.maybe():
        inputs.append(draw.values((classes,), dtype, 0.1, 2))
    return inputs, attributes


@operator("NegativeLogLikelihoodLoss")
def likelihood_loss(draw):
    inputs, attributes = _loss_inputs(draw, -3)
    return draw.case(inputs, attributes)


@operator("SoftmaxCrossEntropyLoss")
def cross_entropy_loss(draw):
    inputs, attributes = _loss_inputs(draw, -3)
    return draw.case(inputs, attributes, draw.int(1, 2))


@operator("SwiGLU")
def swiglu(draw):
    shape, dtype = draw.shape(), draw.dtype()
    return draw.case([draw.values(shape, dtype), draw.values(shape, dtype)], draw.some(alpha=draw.real(0.5, 2)))

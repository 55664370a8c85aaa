"""Optimizers of ai.onnx.preview.training."""
import numpy

from .draw import operator

TRAINING = "ai.onnx.preview.training"


def _case(draw, states, attributes):
    count, dtype = draw.int(1, 2), draw.dtype(index=2)
    shapes = [draw.shape(0, 3) for _ in range(count)]
    tensors = [draw.values(shape, dtype, 0.1, 3) for _ in range(2 + states) for shape in shapes]
    inputs = [numpy.array(draw.real(0.01, 0.5), dtype), numpy.array(draw.int(0, 5), "int64"), *tensors]
    return draw.case(inputs, attributes, count * (1 + states))


@operator("Adagrad", domain=TRAINING)
def adagrad(draw):
    return _case(draw, 1, draw.some(decay_factor=draw.real(0, 0.5), epsilon=draw.one(1e-6, 1e-3), norm_coefficient=draw.real(0, 0.5)))


@operator("Adam", domain=TRAINING)
def adam(draw):
    return _case(draw, 2, draw.some(alpha=draw.real(0.5, 0.99), beta=draw.real(0.5, 0.99), epsilon=draw.one(1e-6, 1e-3),
                                    norm_coefficient=draw.real(0, 0.5), norm_coefficient_post=draw.real(0, 0.5)))


@operator("Momentum", domain=TRAINING)
def momentum(draw):
    return _case(draw, 1, {"alpha": draw.real(0.5, 0.99), "beta": draw.real(0.5, 0.99), "mode": draw.one("standard", "nesterov"),
                           "norm_coefficient": draw.real(0, 0.5)})

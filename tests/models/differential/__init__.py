"""Random legal one-node models of every operator: Evener against onnx's reference evaluator and ONNX Runtime.

draw.py draws and registers, the files by topic have a generator for each operator, judges.py runs, trial.py counts and compares, and
disagreements.py lists where the judges differ from each other and why Evener goes with which.
"""
from . import (  # noqa: F401
    attention, bodies, contrib, contrib_attention, conv, elementwise, indexing, normalize, pool, products, quantize, recurrent, reduce,
    sequences, shape, signal, strings, training, vision)
from .draw import GENERATORS  # noqa: F401

# Operators that no generator draws, and why.
NOT_DRAWN = {
    "Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike": "their results are random",
    "BiasSplitGelu NhwcConv": "no judge has them; test_contrib.py puts them together from other operators",
    "ImageDecoder": "its input is a picture's file",
}

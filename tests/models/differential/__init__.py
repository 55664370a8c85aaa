"""Random legal one-node models of every operator: Evener against onnx's reference evaluator and ONNX Runtime.

draw.py draws and registers, the files by topic have a generator for each operator, judges.py runs, trial.py counts and compares, and
disagreements.py lists where the judges differ from each other and why Evener goes with which.
"""
from . import attention, conv, elementwise, indexing, normalize, pool, products, quantize, recurrent, reduce, shape, signal, training, vision  # noqa: F401
from .draw import GENERATORS  # noqa: F401

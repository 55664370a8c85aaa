"""Random legal one-node models of every operator: Evener against onnx's reference evaluator and ONNX Runtime.

draw.py draws and registers, the files by topic have a generator for each operator, judges.py runs, trial.py counts and compares, and
disagreements.py lists where the judges differ from each other and why Evener goes with which.
"""
from . import (  # noqa: F401
    attention, contrib, conv, elementwise, indexing, normalize, pool, products, quantize, recurrent, reduce, shape, signal, training, vision)
from .draw import GENERATORS  # noqa: F401

# Operators that no generator draws, and why.
NOT_DRAWN = {
    "If Loop Scan SequenceMap": "their bodies are graphs, which node tests and tests of whole models cover",
    "Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike": "their results are random",
    "Optional OptionalGetElement OptionalHasElement SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert SequenceLength "
    "SplitToSequence ConcatFromSequence": "values that are no tensors",
    "StringConcat StringNormalizer StringSplit RegexFullMatch TfIdfVectorizer": "strings",
    "ImageDecoder": "its input is a picture's file",
}

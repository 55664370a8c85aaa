"""Random legal one-node models of every operator: Evener against onnx's reference evaluator and ONNX Runtime.

draw.py draws and registers, the files by topic have a generator for each operator, judges.py runs, trial.py counts and compares, and
disagreements.py lists where the judges differ from each other and why Evener goes with which.
"""
from . import (  # noqa: F401
    attention, bodies, contrib, contrib_attention, conv, elementwise, indexing, ml, normalize, pool, products, quantize, randoms, recurrent,
    reduce, sequences, shape, signal, strings, training, vision)
from .draw import GENERATORS  # noqa: F401

# Operators that no generator draws, and why.
NOT_DRAWN = {
    "BiasSplitGelu NhwcConv": "no judge has them; tests/models/test_contrib.py puts them together from other operators",
    "CastMap DictVectorizer ZipMap": "values that are maps, tests/models/test_ml_maps.py",
    "SVMClassifier SVMRegressor": "drawn in tests/models/test_ml_svm.py",
    "ImageDecoder": "its input is a picture's file; tests/models/test_image_decoder.py",
}

#!/usr/bin/env python3
"""Networks without their weights, for speed measurements: takes the large weights out of a model, or fills them in again.

usage: skeleton.py strip MODEL SKELETON
       skeleton.py fill SKELETON MODEL

A skeleton records mean, deviation, smallest and largest value of each weight that was taken out. `fill` draws noise with
these moments, seeded with the weight's name: the same skeleton gives the same model everywhere. Such a model computes
nothing of use, but as fast as the original, and without overflow. skeletons.tgz beside this file holds some.
`fill_computed` does the same for weights that a model makes of one number each. Needs numpy and onnx.
"""
import argparse
import json
import pathlib
import zlib

import numpy
import onnx
from onnx import numpy_helper

KEPT_ELEMENTS = 1024         # smaller weights stay: scalars, shapes, statistics
KEPT_VECTOR_ELEMENTS = 8192  # biases and statistics, which have one axis
METADATA_KEY = "random_weights"


def is_removable(values):
    """Whether a weight is large and only numbers: no shape, index or vector of statistics."""
    if values.size <= KEPT_ELEMENTS or (values.ndim < 2 and values.size <= KEPT_VECTOR_ELEMENTS):
        return False
    return values.dtype.kind in "fi" and values.dtype != numpy.int64


def strip(model):
    """Takes the large weights out of `model`, in place."""
    moments = {}
    for tensor in model.graph.initializer:
        values = numpy_helper.to_array(tensor)
        if is_removable(values):
            figures = (values.mean(), values.std(), values.min(), values.max())
            moments[tensor.name] = [round(float(figure), 6) for figure in figures]
            for field in ("raw_data", "float_data", "int32_data"):
                tensor.ClearField(field)
    model.metadata_props.add(key=METADATA_KEY, value=json.dumps(moments))


def noise(tensor, moments):
    """The bytes of seeded noise for one weight."""
    mean, deviation, smallest, largest = moments
    dtype = numpy.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type))
    generator = numpy.random.RandomState(zlib.crc32(tensor.name.encode()))  # the one generator whose stream numpy has frozen
    values = generator.standard_normal(int(numpy.prod(tensor.dims))) * deviation + mean
    values = numpy.clip(values, smallest, largest)
    return (numpy.rint(values) if dtype.kind == "i" else values).astype(dtype).tobytes()


def fill(model):
    """Fills the weights that `strip` took out of `model`, in place."""
    records = [entry.value for entry in model.metadata_props if entry.key == METADATA_KEY]
    if len(records) != 1:
        raise SystemExit("skeleton.py: this is no skeleton: it has no record of removed weights")
    moments = json.loads(records[0])
    for tensor in model.graph.initializer:
        if tensor.name in moments:
            tensor.raw_data = noise(tensor, moments[tensor.name])
    del model.metadata_props[:]


def computed_weight(shape, op, index, gain, generator):
    """Noise for a weight that is input `index` of an `op`: scales and variances stay near 1, and what is added is small."""
    values = generator.standard_normal(shape, dtype="float32")
    if op in ("Conv", "Gemm") and index == 1:
        return values * numpy.float32(numpy.sqrt(gain / numpy.prod(shape[1:])))
    if op == "Mul" or (op == "BatchNormalization" and index in (1, 4)):
        return 1 + numpy.float32(0.1) * values.clip(-3, 3)
    return numpy.float32(0.01) * values


def fill_computed(model):
    """Puts seeded noise in the place of the weights that ConstantOfShape nodes make of one number each, in place."""
    graph = model.graph
    shapes = {tensor.name: tensor for tensor in graph.initializer}
    users = {name: (node, index) for node in graph.node for index, name in enumerate(node.input)}
    # 2 makes up for what Relu takes away; where branches are added up, that would grow with each addition.
    gain = 0.5 if any(node.op_type == "Sum" for node in graph.node) else 2.0
    kept = []
    for node in graph.node:
        if node.op_type != "ConstantOfShape":
            kept.append(node)
            continue
        user, index = users[node.output[0]]
        if user.op_type == "Unsqueeze":
            user, index = users[user.output[0]]
        generator = numpy.random.default_rng(zlib.crc32(node.output[0].encode()))
        values = computed_weight(numpy_helper.to_array(shapes[node.input[0]]), user.op_type, index, gain, generator)
        graph.initializer.append(numpy_helper.from_array(values, node.output[0]))
    del graph.node[:]
    graph.node.extend(kept)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("action", choices=("strip", "fill"))
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("target", type=pathlib.Path)
    arguments = parser.parse_args()
    model = onnx.load(arguments.source)
    {"strip": strip, "fill": fill}[arguments.action](model)
    arguments.target.write_bytes(model.SerializeToString())


if __name__ == "__main__":
    main()

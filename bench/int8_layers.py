#!/usr/bin/env python3
"""Times single layers: Evener's int8, its float32, and ONNX Runtime's int8, in turns; says how far both int8 results differ.

usage: EVENER_LIBRARY=build/release/libevener.so int8_layers.py [--threads N] [--rounds N]

A layer that gives what it takes is run four times in a row, so that the re-layouts at the ends count for less.
"""
import argparse
import os
import pathlib
import statistics
import sys
import tempfile
import time

import numpy
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "bindings" / "python"))
import evener  # noqa: E402

CHAIN = 4
SECONDS = 0.03  # of a measurement
MATRICES = [  # m, k, n
    (1, 768, 3072), (1, 4096, 4096), (8, 768, 768), (128, 768, 768), (128, 768, 3072), (128, 3072, 768), (1024, 1024, 1024)]
CONVOLUTIONS = [  # input channels, height, output channels, kernel, stride, group
    (3, 224, 64, 7, 2, 1), (64, 56, 64, 1, 1, 1), (64, 56, 64, 3, 1, 1), (256, 56, 64, 1, 1, 1), (64, 56, 256, 1, 1, 1),
    (128, 28, 128, 3, 1, 1), (256, 14, 256, 3, 1, 1), (1024, 14, 256, 1, 1, 1), (512, 7, 512, 3, 1, 1), (128, 56, 128, 3, 2, 1),
    (32, 112, 32, 3, 1, 32), (144, 56, 144, 3, 1, 144), (384, 14, 384, 3, 1, 384), (960, 7, 960, 3, 1, 960), (96, 112, 96, 3, 2, 96)]


def finish(nodes, constants, x_type, x_shape, y_type):
    inputs = [helper.make_tensor_value_info("x", x_type, x_shape)]
    outputs = [helper.make_tensor_value_info("y", y_type, None)]
    nodes[-1].output[0] = "y"
    constants = [numpy_helper.from_array(numpy.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "layers", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def matrix(random, shape, is_int8):
    m, k, n = shape
    if not is_int8:
        weight = random.standard_normal((k, n)).astype(numpy.float32)
        nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
        return finish(nodes, {"w": weight}, TensorProto.FLOAT, [m, k], TensorProto.FLOAT), 1
    constants = {"w": random.integers(-127, 127, (k, n)).astype(numpy.int8), "zero": numpy.uint8(128)}
    nodes = [helper.make_node("MatMulInteger", ["x", "w", "zero"], ["y"])]
    return finish(nodes, constants, TensorProto.UINT8, [m, k], TensorProto.INT32), 1


def convolution(random, shape, is_int8):
    channels, height, filters, kernel, stride, group = shape
    layers = CHAIN if channels == filters and stride == 1 else 1
    numbers = {"xs": numpy.float32(0.02), "xz": numpy.uint8(128),
               "ws": numpy.full(filters, 0.003, numpy.float32), "wz": numpy.zeros(filters, numpy.int8),
               "ys": numpy.float32(0.05), "yz": numpy.uint8(120)}
    constants = dict(numbers) if is_int8 else {}
    nodes = []
    for i in range(layers):
        x = f"y{i - 1}" if i else "x"
        size = (filters, channels // group, kernel, kernel)
        if is_int8:
            constants[f"w{i}"] = random.integers(-127, 127, size).astype(numpy.int8)
            constants[f"b{i}"] = random.integers(-1000, 1000, filters).astype(numpy.int32)
            inputs = [x, "xs", "xz", f"w{i}", "ws", "wz", "ys", "yz", f"b{i}"]
        else:
            constants[f"w{i}"] = (random.standard_normal(size) / (size[1] * kernel * kernel) ** 0.5).astype(numpy.float32)
            constants[f"b{i}"] = random.standard_normal(filters).astype(numpy.float32)
            inputs = [x, f"w{i}", f"b{i}"]
        op = "QLinearConv" if is_int8 else "Conv"
        nodes.append(helper.make_node(op, inputs, [f"y{i}"], pads=[kernel // 2] * 4, strides=[stride] * 2, group=group))
    kind = TensorProto.UINT8 if is_int8 else TensorProto.FLOAT
    return finish(nodes, constants, kind, [1, channels, height, height], kind), layers


def feed(random, model):
    tensor = model.graph.input[0].type.tensor_type
    shape = [d.dim_value for d in tensor.shape.dim]
    if tensor.elem_type == TensorProto.FLOAT:
        return {"x": random.standard_normal(shape).astype(numpy.float32)}
    return {"x": random.integers(0, 255, shape).astype(numpy.uint8)}


def session_of(runtime, model):
    with tempfile.NamedTemporaryFile(suffix=".onnx", delete=False) as file:
        file.write(model.SerializeToString())
    try:
        return runtime.session(file.name)
    finally:
        os.unlink(file.name)


def seconds_of(run):
    count = 1
    while True:
        start = time.perf_counter()
        for _ in range(count):
            run()
        took = time.perf_counter() - start
        if took > SECONDS:
            return took / count
        count *= 2


def compare(name, make, shape, runtime, options):
    random = numpy.random.default_rng(0)
    (whole, layers), (floats, _) = make(random, shape, True), make(random, shape, False)
    mine, theirs = session_of(runtime, whole), session_of(runtime, floats)
    choices = onnxruntime.SessionOptions()
    choices.intra_op_num_threads = options.threads
    choices.add_session_config_entry("session.intra_op.allow_spinning", "0")  # in the same process as the others
    other = onnxruntime.InferenceSession(whole.SerializeToString(), choices, providers=["CPUExecutionProvider"])
    x, x_float = feed(random, whole), feed(random, floats)
    difference = int(numpy.abs(next(iter(mine.run(x).values())).astype(numpy.int64) - other.run(None, x)[0]).max())
    runs = [lambda: mine.run(x), lambda: theirs.run(x_float), lambda: other.run(None, x)]
    times = [[seconds_of(run) for run in runs] for _ in range(options.rounds)]
    int8, float32, ort = (statistics.median(column) / layers * 1e6 for column in zip(*times))
    print(f"{name} {shape!s:32} int8 {int8:9.1f} us   float32 / int8 {float32 / int8:6.2f}   ONNX Runtime / int8 {ort / int8:6.2f}"
          f"   differs by {difference}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    runtime = evener.Runtime(threads=options.threads)
    for shape in MATRICES:
        compare("matrix", matrix, shape, runtime, options)
    for shape in CONVOLUTIONS:
        compare("conv", convolution, shape, runtime, options)


if __name__ == "__main__":
    main()
